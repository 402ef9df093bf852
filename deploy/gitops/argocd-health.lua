-- Health of a Skill or SkillRuntime for Argo CD, as kstatus judges it: the first of Reconciling and Stalled in list order decides.
local health = {status = "Progressing", message = "Waiting for the controller"}
if obj.spec ~= nil and obj.spec.suspend == true then
  health.status = "Suspended"
  health.message = "Suspended by spec.suspend"
  return health
end
if obj.status == nil or obj.status.conditions == nil then
  return health
end
if obj.status.observedGeneration ~= nil and obj.status.observedGeneration ~= obj.metadata.generation then
  health.message = "The controller has not seen the last change yet"
  return health
end
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Reconciling" and condition.status == "True" then
    health.status = "Progressing"
    health.message = condition.message
    return health
  end
  if condition.type == "Stalled" and condition.status == "True" then
    health.status = "Degraded"
    health.message = condition.message
    return health
  end
  if condition.type == "Ready" then
    health.message = condition.message
    if condition.status == "True" then
      health.status = "Healthy"
    end
  end
end
return health
