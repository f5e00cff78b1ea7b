-- Read by Slurm's cli_filter.lua (templates/cli_filter.lua.j2): gives a function of the options of sbatch
-- and srun. sbatch says "Submitted", and slurmstepd opens the job's log as the job's user later. Where that
-- user may not, the job ends at once, and there is no log to say why. So it is looked at before, here, as
-- that user: access rights are asked for and not computed, for a file system may have its own. srun opens
-- its files itself and says so. What neither says is that a file lies in the container's own layer.
-- slurmstepd makes folders that are not there, the job's own (-D) and those of its logs, as the user (24.11).
local look = [[
told() { printf '%s\t%s\t%s\t%s (%s)\t%s\n' "$1" "$2" "$(stat -c '%A of %U (%u:%g)' -- "$2")" "$(id -un 2>/dev/null)" "$(id -u)" "$3"; }
full() { case $1 in /*) full=$1 ;; . | ./) full=$2 ;; *) full=$2/$1 ;; esac; }
# What there is on the way to a folder: no more can be seen where one may not be entered
near() { near=$1; while [ ! -e "$near" ] && [ "$near" != / ]; do near=${near%/*} near=${near:-/}; done; }
may_make() { [ -d "$near" ] && [ -w "$near" ] && [ -x "$near" ]; }
kind=$1
full "$2" "$(pwd -P)"; own=$full
shift 2
[ "$kind" = srun ] || [ ! -d "$own" ] || (cd -- "$own") 2>/dev/null || { told enter "$own"; exit; }
while [ "$#" -gt 1 ]; do
   full "$2" "$own"; folder=${full%/} path=${1:+${full%/}/$1}
   shift 2
   [ ! -e "$path" ] || [ -f "$path" ] || continue # /dev/null
   near "${folder:-/}"
   if [ "$kind" = srun ]; then
      : # it opens them itself
   elif [ -e "$path" ]; then
      [ -w "$path" ] || { told write "$(readlink -f -- "$path")"; exit; }
   elif [ ! -x "$near" ] || { [ "$near" = "${folder:-/}" ] && [ -n "$path" ] && [ ! -w "$near" ]; }; then
      told write "$(readlink -f -- "$near")"
      exit
   elif [ "$near" != "${folder:-/}" ] && ! may_make; then
      told missing "$(readlink -f -- "$near")" "$folder"
      exit
   fi
   printf 'in\t%s\t%s\n' "${path:-$folder/}" "$(readlink -f -- "$near")"
done
near "$own"
[ "$kind" = srun ] || [ "$near" = "$own" ] || may_make || told astray "$(readlink -f -- "$near")" "$own"
]]

-- Which mount it lies in; nil where that is not known. The numbers of file systems do not tell: a folder of the
-- host's may be mounted into a root that is a copy on the same one (docs/decisions/0038-builtin-engine.md).
local function mount_of(path)
   local best
   local file = io.open("/proc/self/mountinfo")
   for line in file and file:lines() or function() end do
      local at = (line:match("^%S+ %S+ %S+ %S+ (%S+)") or ""):gsub("\\(%d%d%d)", function(octal)
         return string.char(tonumber(octal, 8))
      end)
      local within = at == "/" or path == at or path:sub(1, #at + 1) == at .. "/"
      if at ~= "" and within and (best == nil or #at >= #best) then
         best = at
      end
   end
   if file then
      file:close()
   end
   return best
end

local of_container = { ["/"] = true, ["/dev/shm"] = true }

local function quoted(text)
   return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- The log's name and the folder that it lies in, as far as it is known before the job has a number: then
-- the name is "". nil where only Slurm can tell.
local function log_of(pattern)
   local folder, name = pattern:match("^(.*/)([^/]*)$")
   if folder == nil then
      folder, name = "./", pattern
   end
   if pattern:find("\\") then
      return nil
   end
   if folder:find("%%") then
      return "", folder:match("^([^%%]*/)") or "./"
   end
   return name, folder
end

local function words_of(options)
   local kind, output, err = options["type"], options["output"] or "", options["error"] or ""
   if kind == "sbatch" and output == "" then
      output = "slurm-%j.out"
   end
   local chdir = options["chdir"] or ""
   local words = { kind, quoted(chdir ~= "" and chdir or ".") }
   for _, pattern in ipairs({ output, err }) do
      -- Of srun, "none", "all" and the number of a task are no files
      local name, folder = log_of(pattern)
      if pattern ~= "" and name ~= nil and (kind == "sbatch" or pattern:find("/")) then
         words[#words + 1] = quoted(name)
         words[#words + 1] = quoted(folder)
      end
   end
   return words
end

local refused = {
   enter = "the job could not begin in its folder",
   write = "the job could not write its log",
}
local warned = {
   missing = "there is no folder %s, and you may not make one: %s. Unless that changes before the job begins, it ends at once and leaves no log",
   astray = "there is no folder %s, and you may not make one: %s. Unless that changes before the job begins, it runs in /tmp of the cluster's container instead",
}

-- Whether the job may be submitted: not where its user may not write its log, which is said with the
-- permission. A log that goes with the container is said, and the job goes on.
return function(options)
   local words, told, good = words_of(options), {}, true
   if #words == 2 and options["type"] ~= "sbatch" then
      return true -- no file is named: nothing is asked
   end
   local asked = io.popen("set -- " .. table.concat(words, " ") .. "\n" .. look)
   for said in asked and asked:lines() or function() end do
      local what, path, mode, user, wanted = (said .. "\t\t\t\t"):match("^(%l+)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)")
      path, wanted = (path or ""):gsub("%c", "?"), (wanted or ""):gsub("%c", "?")
      local right = ("%s is %s, and you are %s"):format(path, mode or "", user or "")
      if what == "in" and not told[path] and of_container[mount_of(mode) or ""] then
         told[path] = true
         slurm.log_info("%s", ("%s lies in the cluster's container alone: it is not on the host, and is lost when the container is removed (dshpc down, another configuration). To keep it, name a file in the work folder: --output=FILE"):format(path))
      elseif warned[what] then -- an earlier job may make it
         slurm.log_info("%s", warned[what]:format(wanted, right))
      elseif refused[what] then
         if user:match("%(0%)$") then
            right = path .. " cannot be written, not even by root: it is read-only here"
         end
         slurm.log_error("%s", ("nothing was submitted, for %s: %s. Go to a folder of your own, name another log with --output=FILE, or have its owner let you write there."):format(refused[what], right))
         good = false
      end
   end
   if asked then
      asked:close()
   end
   return good
end
