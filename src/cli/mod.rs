//! The command line.

pub mod controller;
pub mod crds;
pub mod diff;
pub mod doctor;
mod empty_variables;
mod explicit_flags;
pub mod export;
mod find_sources;
pub mod history;
mod history_rows;
mod history_server;
pub mod hub;
pub mod import;
mod import_url;
pub mod inject;
mod installation;
pub(crate) mod listen_address;
pub mod lock;
pub mod mock;
pub mod packages;
mod packages_serve;
mod probing;
mod programs;
pub mod push;
pub mod registry;
pub mod run;
mod run_args;
mod run_cluster;
mod run_result;
pub mod schema;
mod skill_manifest;
pub mod skills_api;
mod stop;
pub mod terminal;
pub mod trace;
mod trace_text;
pub mod validate;
mod whole_file;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
pub use empty_variables::without_empty_variables;
use knack_gateway::command as gateway;

use crate::{builds, dev};

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
    /// Show what this machine provides for runs of skills, and how to install what is missing
    Doctor(doctor::DoctorArgs),
    /// Reconcile Skills and SkillRuntimes in a cluster
    Controller(controller::ControllerArgs),
    /// Print the custom resource definitions
    #[command(hide = true)]
    Crds(crds::CrdsArgs),
    /// Serve gateways in a cluster: catalog, content and executions
    Hub(hub::HubArgs),
    /// Serve applications in a cluster, with skills and executions from a hub
    Gateway(Box<gateway::GatewayArgs>),
    /// Print manifests with the gateway as a sidecar in their pods
    Inject(inject::InjectArgs),
    /// Serve the scripted model that demonstrations and tests use as a provider
    #[command(hide = true)]
    Mock(mock::MockArgs),
    /// Serve the Skills APIs in a cluster: each upload becomes a Skill
    Registry(registry::RegistryArgs),
    /// Show the rounds, skills, runs and times of one request, or list the last requests
    Trace(trace::TraceArgs),
    /// List or export the executions that knack dev --registry keeps
    History(history::HistoryArgs),
    /// Work with environments of packages: on this machine, and for a cluster
    Packages {
        #[command(subcommand)]
        command: PackagesCommand,
    },
    /// Work with skills: check, run, import, export, upload and compare them, generate tool declarations
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
    Run(Box<run_args::RunArgs>),
    /// Choose versions of the packages that a skill declares, for its requirements.lock, and write what its Python functions
    /// declare as tools to its python-tools.lock
    Lock(lock::LockArgs),
    /// Show which packages skills declare, and the state of their environments on this machine
    Packages(packages::PackagesArgs),
    /// Print the tool declarations of decorated or typed Python functions, as JSON
    Schema(schema::SchemaArgs),
    /// Print the skills of a folder, an archive or an address as manifests for a cluster
    Import(import::ImportArgs),
    /// Upload skills to a server with OpenAI's Skills API, such as a gateway with --registry
    Push(push::PushArgs),
    /// List the versions of an uploaded skill
    Versions(push::VersionsArgs),
    /// Write the files of skills in manifests and archives as folders
    Export(export::ExportArgs),
    /// Show what differs for a model between two versions of a skill
    Diff(diff::DiffArgs),
}

#[derive(Debug, Subcommand)]
enum PackagesCommand {
    /// Build the environments that the skills of a cluster need, by Jobs
    Serve(Box<packages_serve::ServeArgs>),
    /// Build one environment and push it as an image; run by those Jobs
    #[command(hide = true)]
    Build(Box<builds::BuildArgs>),
    /// Remove environments that were not used for some time
    Prune(packages::PruneArgs),
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
    /// The log level unless `KNACK_LOG` or `RUST_LOG` set one: servers log what they do, tools only what is wrong.
    pub const fn default_log(&self) -> &'static str {
        match self.command {
            Command::Dev(_)
            | Command::Doctor(_)
            | Command::Inject(_)
            | Command::Skill { .. }
            | Command::Packages {
                command: PackagesCommand::Prune(_),
            }
            | Command::Mock(_)
            | Command::Trace(_)
            | Command::History(_)
            | Command::Crds(_) => "warn",
            // The client logs every answer that is not a success as an error, and an attach to a pod that is about to
            // start is refused a few times in normal operation; callers log what matters.
            _ => "info,kube=warn,kube_client::client::builder=off,tower=warn",
        }
    }
}

/// Runs the command that the arguments name.
pub async fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Dev(args) => dev::dev(args).await,
        Command::Doctor(args) => doctor::doctor(args).await,
        Command::Controller(args) => controller::controller(args).await,
        Command::Crds(args) => crds::crds(&args),
        Command::Hub(args) => hub::hub(args).await,
        Command::Gateway(args) => gateway::gateway(*args, knack_mcp::router).await,
        Command::Inject(args) => inject::inject(&args),
        Command::Registry(args) => registry::registry(args).await,
        Command::Mock(args) => mock::mock(args).await,
        Command::Trace(args) => trace::trace(args).await,
        Command::History(args) => history::history(args).await,
        Command::Skill {
            command: SkillCommand::Validate(args),
        } => validate::validate(args).await,
        Command::Skill {
            command: SkillCommand::Run(args),
        } => run::run(*args).await,
        Command::Skill {
            command: SkillCommand::Lock(args),
        } => lock::lock(args).await,
        Command::Skill {
            command: SkillCommand::Packages(args),
        } => packages::packages(args).await,
        Command::Packages {
            command: PackagesCommand::Serve(args),
        } => packages_serve::serve(*args).await,
        Command::Packages {
            command: PackagesCommand::Build(args),
        } => builds::build(*args).await,
        Command::Packages {
            command: PackagesCommand::Prune(args),
        } => packages::prune(args).await,
        Command::Skill {
            command: SkillCommand::Schema(args),
        } => schema::schema(&args),
        Command::Skill {
            command: SkillCommand::Import(args),
        } => import::import(args).await,
        Command::Skill {
            command: SkillCommand::Push(args),
        } => push::push(args).await,
        Command::Skill {
            command: SkillCommand::Versions(args),
        } => push::versions(args).await,
        Command::Skill {
            command: SkillCommand::Export(args),
        } => export::export(args).await,
        Command::Skill {
            command: SkillCommand::Diff(args),
        } => diff::diff(args).await,
    };
    let code = result.unwrap_or_else(|error| {
        terminal::error(&format!("{error:#}"));
        ExitCode::FAILURE
    });
    match terminal::not_written() {
        None => code,
        Some(error) => {
            terminal::error(&format!("standard output: {error}; it is not complete"));
            // Another code says more: that of a program, or that something failed before.
            if code == ExitCode::SUCCESS {
                ExitCode::FAILURE
            } else {
                code
            }
        }
    }
}
