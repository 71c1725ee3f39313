//! The command line: `serve`, `shadow`, `demo`, `top`, `doctor`, `support-bundle`, `check`,
//! `version`; and `completions`, `man`, `schema`, which print what is generated from the command
//! line and from the configuration.
//!
//! Exit codes: 0 for a clean end, 1 for a failure at run time, 2 for a command or configuration
//! that can't be followed (clap's own code for the former), 3 for findings of `doctor` and for
//! changes that need a restart (`check --diff`), 130 when a second signal cut a graceful stop
//! short. Results go to standard output, everything else to standard error.

mod check;
#[cfg(feature = "demo")]
pub mod demo;
mod diff;
pub mod failure;
mod generate;
mod given_file;
mod http;
mod operator;
pub mod screen;
pub mod signals;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::app::cgroup::Limits;
use crate::app::introspection::Given;
use crate::app::reload::{ConfigSource, Reloader, report_warnings};
use crate::app::{App, build_info, service_manager};
use crate::cli::failure::Failure;
use crate::cli::screen::Stdout;
use crate::cli::signals::Signals;
use crate::config::file::ConfigFile;
use crate::config::listen::ListenAddress;
use crate::config::resolve::{AdminListen, Overrides};
use crate::config::{Config, LogFormat, ShadowMode};
use crate::server::InheritedSockets;
use crate::telemetry::logging;

/// A caching read-through proxy for the Kubernetes API.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the Kubernetes API from caches, in front of an API server
    Serve(ServeArgs),
    /// Answer from the API server alone, compare each answer with the cache's, and print a report
    /// at the end
    Shadow(ServeArgs),
    /// Run Weir in front of a simulated cluster; needs nothing else
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    /// Show what a running Weir does: verdict, caches, clients by cost, reasons, events, limits.
    /// Clients are ordered by the seats of the API server and the CPU time of Weir that they take
    Top(operator::TopArgs),
    /// Show what clients of a running Weir could do better; exit code 3 if it is worth a warning.
    /// Findings are ordered by their weight, and then by the CPU time of the API server that they
    /// cost
    Doctor(operator::DoctorArgs),
    /// Write the state of a running Weir into an archive, for those who help
    #[command(visible_alias = "support")]
    SupportBundle(operator::bundle::BundleArgs),
    /// Validate a configuration file and print what it means, or ask a running Weir how it is
    /// (--live)
    Check(check::CheckArgs),
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// The directory, which is made if it does not exist
        directory: PathBuf,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print the version and the build profile
    Version,
}

impl Cli {
    /// Parses the arguments of this process, or exits as clap does. Called as a plugin of kubectl,
    /// it goes by that name.
    pub fn from_process() -> Self {
        let program = std::env::args_os().next().map(PathBuf::from);
        let is_plugin = program.is_some_and(|program| program.ends_with("kubectl-weir"));
        let command = Self::command();
        let command = if is_plugin { command.bin_name("kubectl weir") } else { command };
        let matches = command.get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Runs the command on a runtime of its own. `sockets` are those that a service manager opened
    /// for `serve`. One work-stealing runtime serves all connections
    /// (docs/decisions/build-and-runtime.md).
    ///
    /// It blocks, so that the tasks are compiled with this crate and not once more with its caller.
    pub fn run(self, sockets: InheritedSockets) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("weir")
            .event_interval(EVENT_INTERVAL)
            .build()
            .context("cannot start")
            .map_err(Failure::runtime)?;
        let result = runtime.block_on(self.command.run(sockets));
        // A thread that is still blocked (a name lookup, a plugin) must not delay the end.
        runtime.shutdown_background();
        result
    }
}

impl Command {
    async fn run(self, sockets: InheritedSockets) -> Result<(), Failure> {
        match self {
            Self::Serve(args) => Box::pin(serve(args, sockets, false)).await,
            Self::Shadow(args) => Box::pin(serve(args, sockets, true)).await,
            #[cfg(feature = "demo")]
            Self::Demo(args) => Box::pin(demo::run(args)).await,
            Self::Top(args) => operator::top(args).await,
            Self::Doctor(args) => operator::doctor(args).await,
            Self::SupportBundle(args) => operator::bundle::run(args).await,
            Self::Check(args) => check::run(args).await,
            Self::Completions { shell } => generate::completions(shell, Cli::command()),
            Self::Man { directory } => generate::man(&directory, Cli::command()),
            Self::Schema => generate::schema(),
            Self::Version => version(),
        }
    }
}

/// Flags of `serve`; each overrides the configuration file.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// The configuration file (YAML); without it, the defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The kubeconfig of the API server; default: $KUBECONFIG, ~/.kube/config, or the pod's
    /// service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig; default: the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Listener of clients: https://127.0.0.1:6440, http://127.0.0.1:8001 or
    /// unix:///run/weir.sock; may be repeated
    #[arg(long, value_name = "URL")]
    listen: Vec<ListenAddress>,
    /// Address of health checks and metrics, or "none"
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin_listen: Option<AdminListen>,
    /// Format of the log: text, json or kubernetes
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Filter of the log, such as info or weir=debug
    #[arg(long, value_name = "FILTER", env = "WEIR_LOG")]
    log_filter: Option<String>,
    /// Write a kubeconfig for clients of Weir to this file
    #[arg(long, value_name = "FILE")]
    write_kubeconfig: Option<PathBuf>,
}

impl ServeArgs {
    /// Returns the configuration of the file with these flags applied, with budgets that fit the
    /// memory limit of this process, and the file, if there is one, to be read again. `shadow` is
    /// the mode of `weir shadow`.
    fn resolve(
        self,
        shadow: Option<ShadowMode>,
    ) -> Result<(Config, Option<ConfigSource>), Failure> {
        let path = self.config.clone();
        let overrides = Overrides { shadow, ..self.overrides() };
        let open = |path| ConfigSource::open(path, overrides.clone());
        let source = path.map(open).transpose().map_err(Failure::usage)?;
        let (file, name) = match &source {
            Some(source) => {
                (source.parse().map_err(Failure::usage)?, source.path.display().to_string())
            }
            None => (ConfigFile::empty(), "the command line".to_owned()),
        };
        let config = Config::resolve(file, overrides).context(name).map_err(Failure::usage)?;
        Ok((config, source))
    }

    fn overrides(self) -> Overrides {
        Overrides {
            kubeconfig: self.kubeconfig,
            context: self.context,
            listen: self.listen,
            admin_listen: self.admin_listen,
            log_format: self.log_format,
            log_filter: self.log_filter,
            shadow: None,
            memory_limit: Limits::from_current_process().memory_bytes(),
        }
    }
}

/// `compares` is whether to run in shadow mode whatever the file says.
async fn serve(args: ServeArgs, sockets: InheritedSockets, compares: bool) -> Result<(), Failure> {
    let kubeconfig = args.write_kubeconfig.clone();
    let (config, source) = args.resolve(compares.then_some(ShadowMode::Compare))?;
    let log = logging::install(&config.logging).map_err(Failure::runtime)?;
    report_start(&config);
    if !build_info::is_dist() {
        tracing::warn!(
            profile = build_info::PROFILE,
            "this binary is not optimized for production; build it with --profile dist"
        );
    }
    let hangup = Arc::new(Notify::new());
    let mut signals = Signals::listen()
        .and_then(|signals| signals.on_hangup(Arc::clone(&hangup)))
        .context("cannot listen to signals")
        .map_err(Failure::runtime)?;
    let given = Given { log: Some(log.clone()), ..Given::default() };
    let arguments = std::env::args_os().map(|given| given.to_string_lossy().into_owned());
    let given = given.with_arguments(arguments).with_variables();
    let start = async {
        let app = App::start_with(config, sockets, given).await?;
        if let Some(path) = kubeconfig {
            app.write_kubeconfig(&path)?;
        }
        anyhow::Ok(app)
    };
    let app = tokio::select! {
        app = start => app.map_err(Failure::runtime)?,
        // Weir served no client yet, so there is nothing to drain.
        () = signals.next() => return Ok(()),
    };
    let stop = CancellationToken::new();
    let shadow = app.shadow().filter(|_| compares).cloned();
    let reloader = source.map(|source| app.reloader(source, Some(log.filter)));
    let listeners: Vec<_> = app.listeners().iter().map(ToString::to_string).collect();
    let status = format!("serving {}", listeners.join(", "));
    let running = async {
        tokio::select! {
            () = app.run(stop.clone()) => {}
            never = service_manager::report(&status, &stop) => match never {},
            never = reload(reloader, hangup) => match never {},
        }
    };
    Box::pin(signals.govern(stop.clone(), running)).await?;
    match shadow {
        Some(shadow) => Stdout::open().print(&shadow.text()).map_err(Failure::runtime),
        None => Ok(()),
    }
}

/// Reads the configuration again when it changes, and at SIGHUP.
async fn reload(reloader: Option<Reloader>, hangup: Arc<Notify>) -> Infallible {
    if let Some(reloader) = reloader {
        return reloader.run(hangup).await;
    }
    loop {
        hangup.notified().await;
        // The service manager waits for both.
        service_manager::reloading();
        service_manager::reloaded();
        tracing::warn!("there is no configuration file to read again: see --config");
    }
}

/// Logs the warnings about a configuration, and the memory limit that it fits.
fn report_start(config: &Config) {
    let memory_limit = Limits::from_current_process().memory_bytes();
    report_warnings(config, memory_limit);
    let budgets = config.budget_bytes();
    if let Some(memory_limit) = memory_limit.filter(|limit| budgets <= *limit) {
        tracing::info!(memory_limit, budgets, "the byte budgets fit the memory limit");
    }
}

fn version() -> Result<(), Failure> {
    let line = format!("weir {} ({})\n", build_info::VERSION, build_info::PROFILE);
    Stdout::open().print(&line).map_err(Failure::runtime)
}

/// The tasks that a busy thread polls before it looks for sockets that are ready. tokio's default
/// is 61: while many lists are written, a GET's bytes would wait for 61 of their pieces.
const EVENT_INTERVAL: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::reload::Changes;

    #[test]
    fn a_reload_in_shadow_mode_changes_nothing_that_the_file_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.yaml");
        let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
        std::fs::write(&path, head).unwrap();
        let args = ServeArgs { config: Some(path), ..ServeArgs::default() };
        let (config, source) = args.resolve(Some(ShadowMode::Compare)).unwrap();
        assert_eq!(config.shadow.mode, ShadowMode::Compare);
        let ConfigSource { overrides, .. } = source.clone().unwrap();
        let again = Config::resolve(source.unwrap().parse().unwrap(), overrides).unwrap();
        assert_eq!(config.reloaded(&again).1, Changes::default());
    }
}
