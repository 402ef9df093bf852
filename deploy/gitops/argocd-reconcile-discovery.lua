-- Offers the action "reconcile" on every Skill and SkillRuntime.
return {reconcile = {disabled = false}}
