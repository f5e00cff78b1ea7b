-- Rewrites the GPU names that people use to those of this node, in the controller.
-- What people may say -> the types of this node that it means, the best one first
local names = {
   ["amd"] = { "mi300x" },
   ["amd_instinct_mi300x"] = { "mi300x" },
}

-- How many of each type this node has, in the order that Slurm counts its GPUs in
local types = {
   { "mi300x", 1 },
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

local cpus_per_gpu = 84

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

-- What users write of a job stands in the terminals of all who look at it, and in the log of ended jobs,
-- where a line is a job. So it holds nothing that a terminal obeys and no line break: such signs of a name
-- become "?", and anything else that holds one is refused.
local names = { "name", "comment", "extra", "admin_comment" }
local texts = {
   "account", "alloc_node", "array_inx", "batch_features", "burst_buffer", "cluster_features", "container",
   "cpus_per_tres", "dependency", "exc_nodes", "features", "gres", "licenses", "mail_user", "mcs_label",
   "mem_per_tres", "network", "origin_cluster", "partition", "prefer", "qos", "req_context", "req_nodes",
   "reservation", "selinux_context", "tres_bind", "tres_freq", "tres_per_job", "tres_per_node",
   "tres_per_socket", "tres_per_task", "user_name", "wckey",
}
local paths = { std_in = "standard input", std_out = "standard output", std_err = "standard error" }
local control = "[\1-\31\127]"

-- The bytes behind 127 without those that are no UTF-8 and that a terminal of 8 bits obeys (128 to 159).
local function in_utf8(run)
   local at, kept = 1, {}
   while at <= #run do
      local first, second = run:byte(at, at + 1)
      local more = first < 194 and 0 or first < 224 and 1 or first < 240 and 2 or first < 245 and 3 or 0
      local rest = run:sub(at + 1, at + more)
      local too_long = (first == 224 and (second or 0) < 160) or (first == 240 and (second or 0) < 144)
      if more > 0 and #rest == more and not too_long and rest:find("^[\128-\191]+$") then
         kept[#kept + 1] = run:sub(at, at + more)
         at = at + more + 1
      else
         kept[#kept + 1] = first < 160 and "?" or run:sub(at, at)
         at = at + 1
      end
   end
   return table.concat(kept)
end

-- C0, DEL, C1, the line breaks of Unicode and what turns the letters behind it: U+2028-202E, 2066-2069.
local function plain(text)
   text = text:gsub(control, "?"):gsub("[\128-\255]+", in_utf8):gsub("\194[\128-\159]", "?")
   text = text:gsub("\226\128[\168-\174]", "?"):gsub("\226\129[\166-\169]", "?")
   return text
end

-- `harmless`: what may stand in it nevertheless, as a pattern.
local function is_plain(text, harmless)
   if text == nil then
      return true
   end
   text = text:gsub(harmless or "[\9]", " ")
   return plain(text) == text
end

local function refused(what, rather)
   slurm.log_user(("%s holds a line break or another control character: %s"):format(what, rather))
   return false
end

local function has_plain_texts(job)
   for _, name in ipairs(names) do
      if job[name] ~= nil and plain(job[name]) ~= job[name] then
         job[name] = plain(job[name])
      end
   end
   if not is_plain(job.work_dir) then
      return refused("the name of the job's folder", "rename the folder")
   end
   for name, what in pairs(paths) do
      if not is_plain(job[name]) then
         return refused("the file of the job's " .. what, "give it another name")
      end
   end
   for _, name in ipairs(texts) do
      if not is_plain(job[name]) then
         return refused("the job's " .. name, "leave it out")
      end
   end
   for _, word in pairs(job.argv or {}) do
      if not is_plain(word, "[\9\10]") then -- a script in one word has lines
         return refused("the job's command", "write \\033 for an escape, or put the command into a file")
      end
   end
   return true
end

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
