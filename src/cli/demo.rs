//! `weir demo`: a simulated cluster with changes, Weir in front of it, and a screen that shows what
//! to try and its effect.
//!
//! Everything runs in this process and ends with it. Only the upstream of this Weir is special: it
//! is the same [`App`] as in `weir serve`, and clients reach it with an ordinary kubeconfig.

mod clients;
mod delays;
mod figures;
mod table;
mod tour;
mod workspace;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::app::introspection::Given;
use crate::app::metrics::Metrics;
use crate::cli::demo::delays::Delays;
use crate::cli::demo::figures::Figures;
use crate::cli::demo::table::Table;
use crate::cli::demo::tour::Tour;
use crate::cli::demo::workspace::Workspace;
use crate::cli::failure::Failure;
use crate::cli::screen::Stdout;
use crate::cli::signals::Signals;
use crate::config::file::ConfigFile;
use crate::config::listen::ListenAddress;
use crate::config::resolve::{AdminListen, Overrides};
use crate::config::{ADMIN_LISTEN, Config, LISTEN, PLAIN_LISTEN};
use crate::server::{InheritedSockets, ListenerKind};
use crate::simulator::{Cluster, Simulator, SimulatorOptions, User};
use crate::telemetry::logging::{self, Log};

/// Flags of `demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Nodes of the simulated cluster
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    nodes: u32,
    /// Pods of the simulated cluster
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pods: u32,
    /// Changes of objects a second
    #[arg(long, value_name = "RATE", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    churn: u32,
    /// Listeners of clients; may be repeated [default: https://127.0.0.1:6440 and
    /// http://127.0.0.1:8001, or free ports]
    #[arg(long, value_name = "URL")]
    listen: Vec<ListenAddress>,
    /// Start no clients of the demo's own
    #[arg(long)]
    no_clients: bool,
    /// Directory of the kubeconfig, which is removed at the end [default: a new directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Filter of the log, such as info or weir=debug
    #[arg(long, value_name = "FILTER", env = "WEIR_LOG", default_value = "warn")]
    log_filter: String,
}

/// Runs until a signal.
pub async fn run(args: DemoArgs) -> Result<(), Failure> {
    let config = config(&args)?;
    let log = logging::install(&config.logging).map_err(Failure::runtime)?;
    let mut signals =
        Signals::listen().context("cannot listen to signals").map_err(Failure::runtime)?;
    let demo = tokio::select! {
        demo = Demo::start(&args, config, log) => demo.map_err(Failure::runtime)?,
        // Drops everything that was created, including the directory.
        () = signals.next() => return Ok(()),
    };
    let stop = CancellationToken::new();
    signals.govern(stop.clone(), Box::pin(demo.run(stop))).await
}

struct Demo {
    app: App,
    simulator: Simulator,
    cluster: Cluster,
    churn: u32,
    /// How late events come to the demo's clients.
    delays: Arc<Delays>,
    /// Run until they are dropped.
    clients: JoinSet<()>,
    screen: Stdout,
    /// Removes its files when dropped.
    _workspace: Workspace,
}

impl Demo {
    async fn start(args: &DemoArgs, mut config: Config, log: Log) -> anyhow::Result<Self> {
        let mut workspace = Workspace::new(args.dir.as_deref())?;
        // Without users everybody would be an administrator, and roles would mean nothing.
        let token = uuid::Uuid::new_v4().to_string();
        let users = vec![User::admin(&token, "kubernetes-admin")];
        let options = SimulatorOptions { tls: true, users, ..SimulatorOptions::default() };
        let simulator =
            Simulator::start(options).await.context("cannot start the simulated cluster")?;
        let cluster =
            Cluster::populate(&simulator.store(), args.nodes as usize, args.pods as usize)
                .context("cannot populate the simulated cluster")?;
        let upstream = workspace.write("upstream.kubeconfig", &simulator.kubeconfig(&token))?;
        config.upstream.kubeconfig = Some(upstream);

        let given = Given { log: Some(log), ..Given::default() };
        let app = App::start_with(config, InheritedSockets::default(), given).await?;
        let kubeconfig = workspace.file("kubeconfig");
        app.write_kubeconfig(&kubeconfig)?;
        let delays = Arc::new(Delays::default());
        let plain = app.listeners().iter().find(|listener| listener.kind == ListenerKind::Plain);
        let plain = plain.and_then(|listener| listener.address.parse().ok());
        // Clients that connect now are served as soon as Weir runs.
        let clients = match plain.filter(|_| !args.no_clients) {
            Some(address) => clients::start(address, args.nodes, &delays),
            None => JoinSet::new(),
        };
        let mut screen = Stdout::open();
        let program = std::env::args().next().unwrap_or_else(|| "weir".to_owned());
        let tour = Tour {
            nodes: args.nodes,
            pods: args.pods,
            churn: args.churn,
            kubeconfig: &kubeconfig,
            listeners: app.listeners(),
            admin: app.admin_address(),
            has_clients: (!args.no_clients).then_some(!clients.is_empty()),
            program: &program,
        };
        screen.print(&tour.to_string())?;
        let churn = args.churn;
        Ok(Self { app, simulator, cluster, churn, delays, clients, screen, _workspace: workspace })
    }

    async fn run(self, stop: CancellationToken) {
        let Self { app, simulator, cluster, churn, delays, clients, mut screen, _workspace } = self;
        let metrics = app.metrics().clone();
        let living = async {
            tokio::join!(
                cluster.control(stop.clone()),
                cluster.churn(f64::from(churn), stop.clone())
            )
        };
        let watching = async {
            tokio::select! {
                () = draw(&mut screen, &metrics, &simulator, &delays) => {}
                () = stop.cancelled() => {}
            }
            // Weir drains the others' connections, but need not wait for those of this process.
            drop(clients);
            if let Err(error) = screen.print("\nstopping\n") {
                tracing::debug!(%error, "cannot write to the screen");
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = app.run(stop.clone()) => {}
            () = async { tokio::join!(living, watching); } => {}
        }
        if screen.is_terminal()
            && let Err(error) = screen.print("stopped\n")
        {
            tracing::debug!(%error, "cannot write to the screen");
        }
    }
}

/// Shows the figures until it is dropped. In a file or a pipe each has a line of its own, at a
/// longer interval.
async fn draw(screen: &mut Stdout, metrics: &Metrics, simulator: &Simulator, delays: &Delays) {
    let terminal = screen.is_terminal();
    let mut table = Table::default();
    let mut ticks = tokio::time::interval(if terminal { REFRESH } else { REFRESH_IN_FILES });
    loop {
        ticks.tick().await;
        let requests = simulator.requests();
        let server = metrics.server.figures();
        let figures = Figures::new(&server, requests.total());
        let text = if terminal {
            table.draw(&server, requests, delays.percentiles())
        } else {
            format!("{figures}\n")
        };
        if let Err(error) = screen.print(&text) {
            tracing::warn!(%error, "cannot write to the screen");
            return std::future::pending().await;
        }
    }
}

fn config(args: &DemoArgs) -> Result<Config, Failure> {
    let listen = if args.listen.is_empty() {
        let plain = ListenAddress::Plain(free(PLAIN_LISTEN));
        vec![ListenAddress::Tls(free(LISTEN)), plain]
    } else {
        args.listen.clone()
    };
    let overrides = Overrides {
        listen,
        admin_listen: Some(AdminListen(Some(free(ADMIN_LISTEN)))),
        log_filter: Some(args.log_filter.clone()),
        ..Overrides::default()
    };
    let mut config = Config::resolve(ConfigFile::empty(), overrides).map_err(Failure::usage)?;
    // A person waits for the end, and there is no other replica that a slow stop would protect.
    config.server.shutdown_timeout = SHUTDOWN_TIMEOUT;
    Ok(config)
}

/// Returns the address if it is free, else the same address with port 0.
fn free(address: SocketAddr) -> SocketAddr {
    match std::net::TcpListener::bind(address) {
        Ok(_) => address,
        Err(_) => SocketAddr::new(address.ip(), 0),
    }
}

/// How long clients of others have to end their requests.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of the figures on a terminal, which a person can follow.
const REFRESH: Duration = Duration::from_secs(1);

/// The interval of the figures in a log.
const REFRESH_IN_FILES: Duration = Duration::from_secs(10);
