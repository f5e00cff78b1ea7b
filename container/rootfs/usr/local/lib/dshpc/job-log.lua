-- Read by Slurm's cli_filter.lua (templates/cli_filter.lua.j2): gives a function of sbatch's options.
-- sbatch says "Submitted", and slurmstepd opens the job's log as the job's user later. Where that user may
-- not, the job ends at once, and there is no log to say why. So it is looked at before, here, as that user:
-- access rights are asked for and not computed, for a file system may have its own. srun opens its files
-- itself and says so.
local look = [[
told() { printf '%s\t%s\t%s\t%s (%s)\n' "$1" "$2" "$(stat -c '%A of %U (%u:%g)' -- "$2")" "$(id -un 2>/dev/null)" "$(id -u)"; exit; }
[ -d "$1" ] || { printf 'missing\t%s\n' "$1"; exit; }
cd -- "$1" 2>/dev/null || told enter "$1"
shift
while [ "$#" -gt 1 ]; do
   if [ -e "$1" ]; then
      [ -w "$1" ] || told write "$(readlink -f -- "$1")"
   elif [ ! -d "$2" ]; then
      printf 'missing\t%s\n' "$2"
      exit
   elif [ ! -w "$2" ] || [ ! -x "$2" ]; then
      told write "$(readlink -f -- "$2")"
   fi
   shift 2
done
]]

local function quoted(text)
   return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- The log's path and the folder that it lies in; nil where only Slurm can tell the folder.
local function log_of(pattern)
   local folder, name = pattern:match("^(.*/)([^/]*)$")
   if folder == nil then
      folder, name = "./", pattern
   end
   if folder:find("[%%\\]") or name:find("\\") then
      return nil
   end
   return folder .. name, folder
end

-- Whether the user may write the logs of a batch job; else it is said why not, with the permission.
return function(options)
   local words = { quoted(options["chdir"] ~= "" and options["chdir"] or ".") }
   local output, err = options["output"] or "", options["error"] or ""
   for _, pattern in ipairs({ output ~= "" and output or "slurm-%j.out", err }) do
      local path, folder = log_of(pattern)
      if pattern ~= "" and path ~= nil then
         words[#words + 1] = quoted(path)
         words[#words + 1] = quoted(folder)
      end
   end
   local asked = io.popen("set -- " .. table.concat(words, " ") .. "\n" .. look)
   local said = asked and asked:read("*l") or ""
   if asked then
      asked:close()
   end
   local what, path, mode, user = (said .. "\t"):match("^(%l+)\t([^\t]*)\t([^\t]*)\t?([^\t]*)")
   if what == nil then
      return true
   end
   path = path:gsub("%c", "?")
   if what == "missing" then -- an earlier job may make it
      slurm.log_info("%s", ("there is no folder %s, or you may not enter what is above it: unless that changes before the job begins, it ends at once and leaves no log"):format(path))
      return true
   end
   local why = what == "enter" and "the job could not begin in its folder" or "the job could not write its log"
   local right = ("%s is %s, and you are %s"):format(path, mode, user)
   if user:match("%(0%)$") then
      right = path .. " cannot be written, not even by root: it is read-only here"
   end
   slurm.log_error("%s", ("nothing was submitted, for %s: %s. Go to a folder of your own, name another log with --output=FILE, or have its owner let you write there."):format(why, right))
   return false
end
