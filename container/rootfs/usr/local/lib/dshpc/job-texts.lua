-- Read by Slurm's job_submit.lua and cli_filter.lua (templates/): gives a function of a job, and one that
-- makes a text plain.
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

-- Whether the job may be submitted or changed so; its names are made plain.
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

return has_plain_texts, plain
