-- One body, posted again and again, by wrk. KNACK_BODY and KNACK_HEADERS name files; a header is a line `name: value`.
local function content(name)
  local file = assert(io.open(os.getenv(name), "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

wrk.method = "POST"
wrk.body = content("KNACK_BODY")
for name, value in content("KNACK_HEADERS"):gmatch("([%w-]+): ([^\n]*)\n") do
  wrk.headers[name] = value
end

-- Microseconds; wrk counts a status from 400 on as an error of its own.
function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("measured p50=%d p99=%d requests=%d microseconds=%d failed=%d\n",
    latency:percentile(50), latency:percentile(99), summary.requests, summary.duration, failed))
end
