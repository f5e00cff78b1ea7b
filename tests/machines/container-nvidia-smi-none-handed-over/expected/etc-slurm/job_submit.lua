-- Rewrites the GPU names that people use to those of this node, in the controller.
-- What people may say -> the types of this node that it means, the best one first
local names = {
}

-- How many of each type this node has, in the order that Slurm counts its GPUs in
local types = {
}

local function counts_of_node()
   local counts = {}
   for _, item in ipairs(types) do
      counts[item[1]] = item[2]
   end
   return counts
end

-- The first type of which there are enough, else the first of all: Slurm then says what is short.
local function type_for(said, count, counts)
   local meant = names[said:lower()]
   if meant == nil then
      for _, item in ipairs(types) do
         if item[1]:lower() == said:lower() then
            return item[1]
         end
      end
      return said
   end
   for _, name in ipairs(meant) do
      if (counts[name] or 0) >= count then
         return name
      end
   end
   return meant[1] or said
end

-- "nvidia:2" -> "h100:2", "nvidia" -> "h100", "2" -> "2". What is none of these forms stays as it is.
local function renamed(text, counts)
   local said, rest = text:match("^([^:=()]+)(.*)$")
   if said == nil then
      return text
   end
   local count = rest == "" and "1" or rest:match("^[:=](%d+)[kKmMgGtTpP]?$")
   if count == nil then
      return text
   end
   return type_for(said, tonumber(count), counts) .. rest
end

-- Of a list such as "gpu:nvidia:1,shard:2" each item that names GPUs; `typed`: the items are "nvidia:1".
local function renamed_list(text, counts, typed)
   return (text:gsub("[^,]+", function(item)
      if typed then
         return renamed(item, counts)
      end
      local head, rest = item:match("^(gpu[:=])(.+)$")
      if head == nil then
         head, rest = item:match("^(gres[:/]gpu[:=])(.+)$")
      end
      return head and head .. renamed(rest, counts) or item
   end))
end

local fields = { "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task" }

local function rewrite(job)
   for _, field in ipairs(fields) do
      local text = job[field]
      if text ~= nil and text ~= "" then
         local new = renamed_list(text, counts_of_node(), false)
         if new ~= text then
            job[field] = new
         end
      end
   end
end

-- What a batch job must not start with. SLURM_GET_USER_ENV comes from --export=NONE and --get-user-env:
-- slurmd then makes a process namespace, which this container may not, and ends. The task prolog gives
-- the job what it would have learned. SLURM_STEP_GPUS is the submitting step's, not this job's.
local cleared = { SLURM_GET_USER_ENV = "0", SLURM_STEP_GPUS = "" }

local function clear(job)
   if job["script"] == nil or job["script"] == "" then
      return -- only a batch job has variables here, and to ask for others' is an error in the log
   end
   local environment = job["environment"]
   if environment == nil then
      return
   end
   for name, value in pairs(cleared) do
      if environment[name] ~= nil then
         environment[name] = value
      end
   end
end

-- The log of ended jobs has a line for each, with its name and its folder: a line break in one of them
-- would write the end of another user's job.
local function is_one_line(job)
   if job.name ~= nil then
      job.name = job.name:gsub("[\1-\31\127]", "?")
   end
   if job.work_dir ~= nil and job.work_dir:find("\n", 1, true) then
      slurm.log_user("the name of the job's folder holds a line break: rename the folder")
      return false
   end
   return true
end

function slurm_job_submit(job, partitions, uid)
   if not is_one_line(job) then
      return slurm.ERROR
   end
   clear(job)
   rewrite(job)
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
   if not is_one_line(job) then
      return slurm.ERROR
   end
   rewrite(job)
   return slurm.SUCCESS
end

return slurm.SUCCESS
