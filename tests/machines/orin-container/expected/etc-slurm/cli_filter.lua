-- Rewrites the GPU names that people use to those of this node, in srun, sbatch and salloc:
-- a step that srun starts keeps the client's text, whatever the controller makes of it.
-- What people may say -> the types of this node that it means, the best one first
local names = {
   ["nvidia"] = { "orin" },
}

-- How many of each type this node has, in the order that Slurm counts its GPUs in
local types = {
   { "orin", 1 },
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

local lists = { "gres", "tres-per-task" }
local typed_lists = { "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task" }

-- Inside a batch job a vendor's name means what the job has; SLURM_JOB_GPUS are its places.
local function counts_of_job(places)
   local counts, first = {}, 0
   for _, item in ipairs(types) do
      for place in places:gmatch("%d+") do
         place = tonumber(place)
         if place >= first and place < first + item[2] then
            counts[item[1]] = (counts[item[1]] or 0) + 1
         end
      end
      first = first + item[2]
   end
   return counts
end

local function counts_here()
   local places = os.getenv("SLURM_JOB_GPUS")
   -- sbatch and salloc ask for a new job, also where they are called inside of one
   if places == nil or places == "" or os.getenv("SLURM_JOB_ID") == nil then
      return counts_of_node()
   end
   return counts_of_job(places)
end

local function rewrite(options, name, typed, counts)
   local text = options[name]
   if type(text) == "string" and text ~= "" then
      local new = renamed_list(text, counts, typed)
      if new ~= text then
         options[name] = new
      end
   end
end

local is_allowed = dofile("/usr/local/lib/dshpc/job-limits.lua")
local can_log = dofile("/usr/local/lib/dshpc/job-log.lua")
local _, plain = dofile("/usr/local/lib/dshpc/job-texts.lua")

-- The name of a step is the client's text, or its program's: terminals show it (squeue -s). In a job srun
-- passes over the name that the job's environment gives it.
local function has_plain_name(options)
   local name = options["job-name"]
   local words = type(options["argv"]) == "table" and options["argv"] or {}
   local program = (words[1] or ""):match("[^/]*$")
   local is_named = name and name ~= "" and name ~= os.getenv("SLURM_JOB_NAME")
   if options["type"] == "srun" and not is_named and plain(program) ~= program then
      slurm.log_error("%s", "the program's name holds a control character: name the step, --job-name=NAME")
      return false
   end
   if type(name) == "string" and plain(name) ~= name then
      options["job-name"] = plain(name)
   end
   return true
end

function slurm_cli_setup_defaults(options, early_pass)
   return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
   local counts = options["type"] == "srun" and counts_here() or counts_of_node()
   for _, name in ipairs(lists) do
      rewrite(options, name, false, counts)
   end
   for _, name in ipairs(typed_lists) do
      rewrite(options, name, true, counts)
   end
   if not is_allowed(options) or not has_plain_name(options) then
      return slurm.ERROR
   end
   if options["type"] ~= "salloc" and not can_log(options) then
      return slurm.ERROR
   end
   return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
   return slurm.SUCCESS
end

return slurm.SUCCESS
