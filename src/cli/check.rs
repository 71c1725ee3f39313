//! `weir check`: validates a configuration file and prints what it means; with `--live` it asks the
//! running Weir how it is, and with `--probe` only whether it is live or ready.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use crate::app::cgroup::Limits;
use crate::cli::diff;
use crate::cli::failure::Failure;
use crate::cli::given_file::GivenFile;
use crate::cli::operator::ask::AdminUrl;
use crate::cli::operator::diagnosis::{self, Probe};
use crate::cli::screen::{Stdout, print_error};
use crate::config::resolve::{Overrides, Problem, Problems};

/// Flags of `check`.
#[derive(Args, Clone, Debug)]
pub(super) struct CheckArgs {
    /// The configuration file; with --live or --probe, the one that says where the running Weir's
    /// admin listener is
    #[arg(required_unless_present_any = ["live", "probe"])]
    file: Option<PathBuf>,
    /// Compare the file with this older one instead, and print which fields a running Weir would
    /// take over (live) and which need a restart; exit code 3 if one does
    #[arg(long, value_name = "OLD", requires = "file", conflicts_with_all = ["live", "probe"])]
    diff: Option<PathBuf>,
    /// Ask the running Weir: its health checks, the API server's version, the clocks, missing
    /// rights, certificates, the last reload. Exit code 1 if one is wrong
    #[arg(long)]
    live: bool,
    /// Only ask whether it is live or ready, as a health check of a container does. Exit code 1 if
    /// it is not, or does not answer within 2 s
    #[arg(long, value_enum, value_name = "CHECK")]
    probe: Option<Probe>,
    /// The admin listener of the running Weir, also unix:///run/weir/admin.sock
    #[arg(long, value_name = "URL")]
    admin: Option<AdminUrl>,
}

pub(super) async fn run(args: CheckArgs) -> Result<(), Failure> {
    let CheckArgs { file, diff: old, live, probe, admin } = args;
    if let Some((old, new)) = old.as_deref().zip(file.as_deref()) {
        return diff::run(old, new);
    }
    if !live && probe.is_none() {
        return file.as_deref().map_or(Ok(()), validate);
    }
    let admin = match (admin, file) {
        (Some(admin), _) => admin,
        (None, None) => AdminUrl::default(),
        (None, Some(file)) => admin_of(&file)?,
    };
    match probe {
        Some(probe) => diagnosis::probe(&admin, probe).await,
        None => diagnosis::run(&admin).await,
    }
}

/// Prints the effective configuration, without what is fitted to this machine, and the warnings on
/// standard error.
fn validate(path: &Path) -> Result<(), Failure> {
    let file = GivenFile::read(path)?;
    let config = file.resolve(Overrides::default())?;
    let memory_limit = Limits::from_current_process().memory_bytes();
    let fitted = file.resolve(Overrides { memory_limit, ..Overrides::default() })?;
    let warnings = fitted.warnings(memory_limit).map_or_else(Vec::new, |Problems(list)| list);
    for Problem { path, message, .. } in warnings {
        print_error(&format!("weir: warning: {path}: {message}"));
    }
    let yaml = config.to_yaml();
    Stdout::open().print(&yaml).map_err(Failure::runtime)
}

/// Returns the admin listener of a configuration: its socket, else its address on this host.
fn admin_of(path: &Path) -> Result<AdminUrl, Failure> {
    let config = GivenFile::read(path)?.resolve(Overrides::default())?;
    if let Some(socket) = config.admin.socket {
        return Ok(AdminUrl::Unix(socket));
    }
    let none = || anyhow::anyhow!("{}: admin.listen is none", path.display());
    let mut address = config.admin.listen.with_context(none).map_err(Failure::usage)?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address.to_string().parse().map_err(|error: String| Failure::usage(anyhow::anyhow!(error)))
}
