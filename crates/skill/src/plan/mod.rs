//! The plan of an injection: `plan(&PlanRequest, &Catalog) -> Result<Plan, PlanError>`.

mod types;

pub use types::{
    Action, Active, ContainerPlan, ContainerSkill, Note, Plan, PlanError, PlanRequest, PlannedTool, ToolChoice, Why,
};
