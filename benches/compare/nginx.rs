//! Starts an nginx, if the command line names one, that serves the upstream's responses as files.
//! It shows what another server needs to encrypt and write the same bytes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::own_weir::Identity;
use crate::server::{NGINX, Server};
use crate::usage::Usage;
use crate::weir_process::free_address;

/// A running nginx, which is killed on drop.
pub(crate) struct Nginx {
    child: Child,
    pub(crate) server: Server,
}

impl Nginx {
    /// Starts `program`, which serves the files in `root`. `root` also contains the files of
    /// `identity`.
    pub(crate) async fn start(
        program: &Path,
        root: &Path,
        identity: &Identity,
        token: &str,
    ) -> Self {
        let directory = root.join("nginx");
        std::fs::create_dir(&directory).expect("a directory");
        let address = free_address();
        let (scratch, root) = (directory.display(), root.display());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {scratch}/{kind}; "))
            .collect();
        // A single process without workers, so that its CPU time and memory are nginx's total.
        let text = format!(
            "daemon off; master_process off; pid {scratch}/pid; error_log {scratch}/error.log;
            events {{ worker_connections 1024; }}
            http {{
              access_log off; sendfile on; keepalive_requests 1000000000; keepalive_timeout 1h;
              default_type application/json; open_file_cache max=100; {temporary}
              server {{
                listen {address} ssl http2; root {root};
                ssl_certificate {root}/tls.crt; ssl_certificate_key {root}/tls.key;
              }}
            }}"
        );
        let file = directory.join("nginx.conf");
        std::fs::write(&file, text).expect("a file");
        let child = Command::new(program)
            .args(["-p".as_ref(), directory.as_os_str(), "-c".as_ref(), file.as_os_str()])
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx starts");
        let mut server =
            Server::new(NGINX, &format!("https://{address}"), &identity.certificate, token);
        server.usage = Usage::Process(child.id());
        // Constructed before the wait, so that the process is killed if it never listens.
        let nginx = Self { child, server };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(address).await.is_err() {
            assert!(Instant::now() < deadline, "nginx does not listen: {scratch}/error.log");
            sleep(Duration::from_millis(50)).await;
        }
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.child.kill().expect("nginx runs");
        self.child.wait().expect("nginx ends");
    }
}
