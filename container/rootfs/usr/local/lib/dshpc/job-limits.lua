-- Read by Slurm's cli_filter.lua (templates/cli_filter.lua.j2): gives a function of the options of sbatch,
-- srun and salloc. What slurm.conf in force lets no job have, and what it lets come to nothing, is said in
-- words: Slurm calls an array that is too large an invalid specification, and mails nothing in silence.
-- The file is read only where one of these options is used: all other jobs pay nothing.
local conf = os.getenv("SLURM_CONF") or "/etc/slurm/slurm.conf"
local no_mail = { ["/usr/bin/true"] = true, ["/bin/true"] = true }

-- The value that counts of a key in lower case: the last one; nil where none stands there.
local function value_of(wanted)
   local file, found = io.open(conf), nil
   for line in file and file:lines() or function() end do
      local key, value = line:gsub("#.*", ""):match("^%s*(%w+)%s*=%s*(%S+)")
      if key ~= nil and key:lower() == wanted then
         found = value
      end
   end
   if file then
      file:close()
   end
   return found
end

-- The largest number of a task: 9 of "1-5,9%2", of "0-9:3" too.
local function last_task(array)
   local last = 0
   for item in array:gsub("%%.*", ""):gmatch("[^,]+") do
      for number in item:gsub(":.*", ""):gmatch("%d+") do
         last = math.max(last, tonumber(number))
      end
   end
   return last
end

local function array_fits(array)
   local most = tonumber(value_of("maxarraysize") or "1001")
   if array == "" or most == nil or last_task(array) < most then
      return true
   end
   slurm.log_error("%s", ("nothing was submitted, for the array is too large: task numbers of this cluster end at %d. Submit it in parts, or have the cluster's owner raise the limit on the host: dshpc config set array_limit NUMBER, then configure-environment"):format(most - 1))
   return false
end

local function tell_of_mail()
   local program = value_of("mailprog") or "/bin/mail"
   local file = not no_mail[program] and io.open(program)
   if file then
      file:close()
   else
      slurm.log_info("%s", "--mail-type needs a mail program, which this cluster does not have: the job goes on, and no mail is sent")
   end
end

local function images_are_possible()
   local done = os.execute("exec /usr/local/lib/dshpc/image-run --try")
   return done == true or done == 0 -- as Lua has it since 5.2, and before
end

-- A job in an image that would not begin is told before it is queued (`dshpc run --image` does so itself).
local function has_own_image(options)
   local bundle, why = options["container"] or "", nil
   if (options["container-id"] or "") ~= "" then
      why = "--container-id means something to other runtimes, and nothing here. Leave it out"
   elseif bundle ~= "" and not images_are_possible() then
      why = "jobs may not run in images on this cluster. On the host: dshpc config set containers on, then configure-environment"
   elseif bundle:find("'", 1, true) then
      why = "the path of a bundle may hold no apostrophe"
   elseif bundle:sub(1, 1) == "/" then
      local file = io.open(bundle .. "/config.json")
      if file then
         file:close()
      else
         why = ("%s is no OCI bundle: there is no config.json in it that you may read. For an image's file: dshpc run --image FILE -- COMMAND"):format(bundle)
      end
   end
   if why then
      slurm.log_error("%s", "nothing was submitted: " .. why)
   end
   return why == nil
end

-- A step has all that its job has, but for one with --exact or --overlap: an srun in it waits for its end, and
-- Slurm says so after two minutes at the earliest (launch_common_create_job_step in src/srun/launch.c, 24.11).
local function tell_of_outer_step(options)
   local step, job = os.getenv("SLURM_STEP_ID") or "", os.getenv("SLURM_JOB_ID") or ""
   local other = options["jobid"] or job
   if step:match("^%d+$") and job ~= "" and other == job and options["overlap"] ~= "set" then
      slurm.log_info("%s", "this srun runs in a step of srun, and waits until that has ended or leaves something free. To run on the same CPUs and GPUs at the same time: srun --overlap")
   end
end

-- Whether the job is to be submitted.
return function(options)
   if options["type"] == "srun" then
      tell_of_outer_step(options)
   end
   if not has_own_image(options) then
      return false
   end
   local mail = options["mail-type"] or ""
   if mail ~= "" and mail:upper() ~= "NONE" then
      tell_of_mail()
   end
   return options["type"] ~= "sbatch" or array_fits(options["array"] or "")
end
