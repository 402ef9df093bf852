//! The command line.

pub mod controller;
pub mod crds;
pub mod dev;
pub mod gateway;
pub mod hub;
mod installation;
mod local;
pub mod mock;
mod provider_keys;
pub mod run;
mod run_cluster;
pub mod schema;
mod signals;
pub mod terminal;
pub mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// LLM skills for unchanged applications: injected by a gateway, run once in sealed sandboxes.
#[derive(Debug, Parser)]
#[command(name = "knack", version, max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the gateway on this machine, with skills from files
    Dev(dev::DevArgs),
    /// Reconcile Skills and SkillRuntimes in a cluster
    Controller(controller::ControllerArgs),
    /// Print the custom resource definitions
    #[command(hide = true)]
    Crds(crds::CrdsArgs),
    /// Serve gateways in a cluster: catalog, content and executions
    Hub(hub::HubArgs),
    /// Serve applications in a cluster, with skills and executions from a hub
    Gateway(gateway::GatewayArgs),
    /// Serve the scripted model that demonstrations and tests use as a provider
    #[command(hide = true)]
    Mock(mock::MockArgs),
    /// Work with skills: check them, run them, make tool declarations
    Skill {
        #[command(subcommand)]
        command: SkillCommand,
    },
}

#[derive(Debug, Subcommand)]
enum SkillCommand {
    /// Check skill folders and manifests
    Validate(validate::ValidateArgs),
    /// Run a skill's tool, or a command with its files, once: in the local sandbox, or with --runtime in a cluster
    Run(Box<run::RunArgs>),
    /// Print the tool declarations of decorated Python functions, as JSON
    Schema(schema::SchemaArgs),
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Output {
    /// For a person.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

impl Cli {
    /// What is logged unless `KNACK_LOG` or `RUST_LOG` say otherwise: servers tell what they do, tools only what is wrong.
    pub const fn default_log(&self) -> &'static str {
        match self.command {
            Command::Dev(_) | Command::Skill { .. } | Command::Mock(_) | Command::Crds(_) => "warn",
            // The client calls every answer that is not a success an error, and an attach to a pod that is about to start
            // is refused a few times as a matter of course; whoever asked tells what matters.
            _ => "info,kube=warn,kube_client::client::builder=off,tower=warn",
        }
    }
}

/// Runs the command that the arguments name.
pub async fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Dev(args) => dev::dev(args).await,
        Command::Controller(args) => controller::controller(args).await,
        Command::Crds(args) => crds::crds(&args),
        Command::Hub(args) => hub::hub(args).await,
        Command::Gateway(args) => gateway::gateway(args).await,
        Command::Mock(args) => mock::mock(args).await,
        Command::Skill {
            command: SkillCommand::Validate(args),
        } => validate::validate(args).await,
        Command::Skill {
            command: SkillCommand::Run(args),
        } => run::run(*args).await,
        Command::Skill {
            command: SkillCommand::Schema(args),
        } => schema::schema(&args),
    };
    result.unwrap_or_else(|error| {
        terminal::error(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}
