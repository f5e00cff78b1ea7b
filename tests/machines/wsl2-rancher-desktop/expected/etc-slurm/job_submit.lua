-- Rewrites the GPU names that people use to those of this node, in the controller.
-- What people may say -> the types of this node that it means, the best one first
local names = {
   ["nvidia"] = { "rtx_3080" },
   ["nvidia_geforce_rtx_3080"] = { "rtx_3080" },
}

-- How many of each type this node has, in the order that Slurm counts its GPUs in
local types = {
   { "rtx_3080", 1 },
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

local cpus_per_gpu = 14

-- How many GPUs a job asks for by one item of one option, and of which type; nil for all other forms.
local function gpus_of(job)
   local count, type = nil, nil
   for _, field in ipairs(fields) do
      for item in (job[field] or ""):gmatch("[^,]+") do
         local rest = item:match("^gres[:/]gpu(.*)$")
         if rest ~= nil then
            if count ~= nil or field == "tres_per_task" or field == "tres_per_socket" then
               return nil
            end
            count = tonumber(rest:match("[:=](%d+)$") or "1")
            type = rest:match("^[:=]([^:=]+)")
            if type ~= nil and tonumber(type) ~= nil then
               type = nil
            end
         end
      end
   end
   return count, type
end

-- Whether the node has so many: with CPUs for each, Slurm would queue for ever what it else refuses.
local function are_there(count, type)
   local all = 0
   for name, each in pairs(counts_of_node()) do
      all = all + ((type == nil or type == name) and each or 0)
   end
   return count <= all
end

-- CPUs for a job that names GPUs and no CPUs: its share. DefCpuPerGPU would refuse more tasks than the
-- share has CPUs, whole nodes and GPUs of several types, although there is room for them.
local function share_cpus(job)
   local gpus, type = gpus_of(job)
   if gpus == nil or gpus < 1 or not are_there(gpus, type) or (job.cpus_per_tres or "") ~= "" or job.shared == 0 then
      return
   end
   if job.cpus_per_task ~= slurm.NO_VAL16 then
      return
   end
   if job.num_tasks ~= slurm.NO_VAL and job.num_tasks > gpus * cpus_per_gpu then
      return
   end
   job.cpus_per_tres = "gres/gpu:" .. cpus_per_gpu
end

local INVALID_GRES = 2072 -- ESLURM_INVALID_GRES of slurm_errno.h, which Lua is not given

-- Why no GPU of this node can be what the job names, as Slurm does not say which it has.
local function unknown(job)
   local counts, have = counts_of_node(), {}
   for _, item in ipairs(types) do
      have[#have + 1] = item[1] .. " (" .. item[2] .. ")"
   end
   for _, field in ipairs(fields) do
      for item in (job[field] or ""):gmatch("[^,]+") do
         local said = item:match("^gres[:/]gpu[:=]([^:=]+)")
         if said ~= nil and not said:match("^%d+%a?$") and counts[said] == nil then
            said = said:gsub("[^%w._+-]", "?") -- log_user takes a format
            return ("this cluster has no GPU named %s, it has: %s"):format(said, table.concat(have, ", "))
         end
      end
   end
   return nil
end

local has_plain_texts = dofile("/usr/local/lib/dshpc/job-texts.lua")

-- Slurm gives each part of a heterogeneous job a node of its own: on one node such a job waits for ever,
-- and the scheduler begins no other job of its partition behind it (sched/backfill, 24.11).
local function can_never_run(job)
   if (job.het_job_offset or slurm.NO_VAL) == slurm.NO_VAL then
      return false
   end
   slurm.log_user("a heterogeneous job can never run here: each of its parts needs a node of its own, and this cluster has one. Ask for all of it in one job, and run its parts as steps: srun --exact -n1 A & srun --exact -n1 B & wait")
   return true
end

function slurm_job_submit(job, partitions, uid)
   if can_never_run(job) or not has_plain_texts(job) then
      return slurm.ERROR
   end
   clear(job)
   rewrite(job)
   local why = unknown(job)
   if why ~= nil then
      slurm.log_user(why)
      return INVALID_GRES
   end
   share_cpus(job)
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
   if not has_plain_texts(job) then
      return slurm.ERROR
   end
   rewrite(job)
   return slurm.SUCCESS
end

return slurm.SUCCESS
