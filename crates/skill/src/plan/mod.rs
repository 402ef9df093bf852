//! The plan of an injection: which skills one request gets, and the exact texts and tools that stand for them.
//!
//! ```text
//! PlanRequest + Catalog -> select (named, scored) -> assemble (texts, tools, names) -> Plan
//! ```
//! It decides nothing about wire shapes: where the text and tools stand in a body is knack-wire's business.

pub(crate) mod assemble;
mod explain;
mod limits;
#[cfg(test)]
mod naming_tests;
mod select;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;

pub use explain::unused;
pub use types::{
    Action, Active, ContainerPlan, ContainerSkill, Note, Plan, PlanError, PlanRequest, PlannedTool, ToolChoice, Why,
};

use crate::catalog::Catalog;

/// Plans the injection for one request. Fails only if the request names a skill that is not here.
///
/// A request that names nothing, scores nothing and collides with nothing gets the catalog's own text and tools by reference count;
/// the cost is then one look-up per client tool and one look at the first byte of each user text.
pub fn plan(request: &PlanRequest<'_>, catalog: &Catalog) -> Result<Plan, PlanError> {
    let container = select::container(request.container, catalog)?;
    let header = select::header(request.header, catalog)?;
    if let Some(reason) = limits::off(request, catalog.settings(), header.is_none()) {
        return Ok(Plan {
            container: container.plan,
            off: true,
            notes: vec![Note {
                skill: None,
                text: reason,
            }],
            ..Plan::default()
        });
    }
    let mut named = container.skills;
    select::extend(&mut named, header.unwrap_or_default());
    select::extend(&mut named, select::mentions(request.user_texts, catalog));
    let named = select::without_always(named);
    let scored = select::scored(request, catalog, &named);
    let collides = request
        .client_tools
        .iter()
        .any(|name| catalog.base().names.contains(*name));
    if named.is_empty() && scored.is_empty() && !collides {
        return Ok(Plan {
            container: container.plan,
            ..Plan::shared(catalog)
        });
    }
    Ok(Plan {
        container: container.plan,
        ..assemble::assemble(catalog, &named, &scored, request.client_tools)
    })
}

impl Plan {
    /// The tool of ours that has this wire name in this request.
    pub fn tool(&self, wire_name: &str) -> Option<&Arc<PlannedTool>> {
        self.tools.iter().find(|tool| tool.name == wire_name)
    }

    /// Whether nothing is added to the request.
    pub fn is_empty(&self) -> bool {
        self.system.is_empty() && self.tools.is_empty()
    }

    fn shared(catalog: &Catalog) -> Self {
        let base = catalog.base();
        Self {
            system: Arc::clone(&base.system),
            tools: Arc::clone(&base.tools),
            active: Arc::clone(&base.active),
            shared: true,
            added_tokens: base.added_tokens,
            ..Self::default()
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            system: Arc::from(""),
            tools: Arc::new([]),
            active: Arc::new([]),
            shared: false,
            notes: Vec::new(),
            container: ContainerPlan::default(),
            litellm: false,
            off: false,
            added_tokens: 0,
        }
    }
}

impl PlannedTool {
    /// Makes a tool from its parts; the schema is minified here.
    pub fn new(name: String, description: String, schema: serde_json::Value, action: Action) -> Self {
        let schema_json = schema.to_string();
        Self {
            name,
            description,
            schema,
            schema_json,
            action,
        }
    }

    /// Bytes that it adds to a request.
    pub(crate) fn bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.schema_json.len()
    }
}
