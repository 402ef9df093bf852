-- Action "reconcile" for Argo CD: asks the controller to look again. It answers in status.lastHandledReconcileAt.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["knack.dev/requestedAt"] = os.date("!%Y-%m-%dT%XZ")
return obj
