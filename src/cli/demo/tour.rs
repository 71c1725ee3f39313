//! The first screen of the demo: all addresses, and what to try.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use crate::server::{BoundListener, ListenerKind};

/// The addresses and files that the screen shows.
pub(super) struct Tour<'a> {
    pub(super) nodes: u32,
    pub(super) pods: u32,
    pub(super) churn: u32,
    pub(super) kubeconfig: &'a Path,
    pub(super) listeners: &'a [BoundListener],
    pub(super) admin: Option<SocketAddr>,
    /// `None` if they were not asked for.
    pub(super) has_clients: Option<bool>,
    /// How this program was started, which need not be on the path.
    pub(super) program: &'a str,
}

impl fmt::Display for Tour<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kubeconfig = self.kubeconfig.display();
        if let Some(admin) = self.admin {
            writeln!(f, "Open http://{admin}/ in a browser: what Weir does, as it happens.\n")?;
        }
        writeln!(
            f,
            "Weir {} before a simulated cluster: {} nodes, {} pods, {} changes a second.\n",
            env!("CARGO_PKG_VERSION"),
            self.nodes,
            self.pods,
            self.churn
        )?;
        writeln!(f, "  kubeconfig   {kubeconfig}")?;
        for listener in self.listeners {
            let (name, url) = place(listener);
            writeln!(f, "  {name:<12} {url}")?;
        }
        if let Some(admin) = self.admin {
            writeln!(f, "  {:<12} http://{admin}/metrics", "metrics")?;
        }
        match self.has_clients {
            Some(true) => writeln!(
                f,
                "\nClients of the demo: controllers with informers, kubelets, kubectl, and a script that lists\nall pods each second; --no-clients leaves them out."
            )?,
            Some(false) => writeln!(
                f,
                "\nThe demo starts no clients of its own: they need a listener without TLS, such as\n--listen http://127.0.0.1:0 in addition."
            )?,
            None => {}
        }
        writeln!(f, "\nTry in another terminal:\n")?;
        writeln!(
            f,
            "  # Tables are made upstream and forwarded; the objects of -o json and of informers are cached."
        )?;
        writeln!(f, "  kubectl --kubeconfig {kubeconfig} get pods -A")?;
        writeln!(f, "  kubectl --kubeconfig {kubeconfig} get pods -A -w -o name")?;
        let plain = self.listeners.iter().find(|listener| listener.kind == ListenerKind::Plain);
        if let Some(listener) = plain {
            let (_, url) = place(listener);
            writeln!(
                f,
                "\n  # From the cache: see X-Weir-Cache. Open many of the watches; the upstream has one."
            )?;
            writeln!(f, "  curl -sD- '{url}/api/v1/nodes?resourceVersion=0' | head")?;
            writeln!(f, "  curl -sN '{url}/api/v1/pods?watch=1&resourceVersion=0' | cut -c1-120")?;
        }
        if let Some(admin) = self.admin {
            writeln!(
                f,
                "\n  {} doctor --admin http://{admin}    # what clients could do better",
                self.program
            )?;
            writeln!(f, "  {} top --admin http://{admin}       # who costs what", self.program)?;
            writeln!(f, "  curl -s http://{admin}/metrics | grep ^weir_")?;
            writeln!(f, "  curl -s 'http://{admin}/readyz?verbose'")?;
        }
        writeln!(f, "\nCtrl-C ends everything.\n")
    }
}

fn place(listener: &BoundListener) -> (&'static str, String) {
    let address = &listener.address;
    match listener.kind {
        ListenerKind::Tls => ("API, TLS", format!("https://{address}")),
        ListenerKind::Plain => ("API, plain", format!("http://{address}")),
        ListenerKind::Unix => ("API, socket", format!("unix://{address}")),
    }
}
