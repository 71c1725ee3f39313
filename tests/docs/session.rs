//! One reader's session: a demo, a directory, and a shell for each command.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command as Program, Output, Stdio};
use std::time::{Duration, Instant};

use crate::page::{self, Command, Step};
use crate::root;

/// How long a command may take, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A text of a page, and its replacement in the test.
struct Replacement {
    written: &'static str,
    actual: String,
}

pub(crate) struct Session {
    page: String,
    directory: PathBuf,
    replacements: Vec<Replacement>,
    demo: Running,
    servers: Vec<Running>,
    /// How many commands were run.
    pub(crate) run: usize,
    /// The commands that failed or printed something else.
    pub(crate) failures: Vec<String>,
}

impl Session {
    /// Starts a demo, and waits until it is ready.
    pub(crate) fn start(page: &str) -> Self {
        let name = format!("weir-docs-{}-{}", std::process::id(), page.replace('/', "-"));
        let directory = std::env::temp_dir().join(name);
        let demo_directory = directory.join("demo");
        fs::create_dir_all(&demo_directory).unwrap();
        let mut command = weir();
        command
            .args(["demo", "--no-clients", "--listen", "http://127.0.0.1:0", "--dir"])
            .arg(&demo_directory);
        command.stdout(file(&directory, "demo.log")).stderr(file(&directory, "demo.err"));
        let mut demo = Running(command.spawn().unwrap());
        let (client, admin) = wait_for(&format!("{page}: the demo"), || {
            if demo.0.try_wait().unwrap().is_some() {
                // Another process took the admin port that was free a moment before.
                let errors = fs::read_to_string(directory.join("demo.err")).unwrap();
                assert!(errors.contains("in use"), "{page}: the demo ended: {errors}");
                demo = Running(command.spawn().unwrap());
            }
            let log = fs::read_to_string(directory.join("demo.log")).unwrap();
            let (clients, others): (Vec<_>, Vec<_>) =
                log.lines().partition(|line| line.contains("API, plain"));
            let client = addresses(&clients).next()?;
            let admin = addresses(&others).find(|one| *one != client && is_ready(one))?;
            Some((client, admin))
        });
        // In this order: a second Weir's addresses have the same beginning as no others.
        let replacements = [
            ("127.0.0.1:8001", client),
            ("127.0.0.1:8002", free_address()),
            ("127.0.0.1:6440", free_address()),
            ("127.0.0.1:6442", free_address()),
            ("127.0.0.1:6441", admin.clone()),
            ("localhost:6441", admin.replace("127.0.0.1", "localhost")),
            ("/tmp/weir-demo", demo_directory.display().to_string()),
            ("/tmp/weir-watch", directory.join("watch").display().to_string()),
            ("/run/weir.sock", directory.join("weir.sock").display().to_string()),
            (" config/", format!(" {}/config/", root().display())),
            (" deploy/", format!(" {}/deploy/", root().display())),
        ];
        let replacements = replacements
            .map(|(written, actual)| Replacement { written, actual })
            .into_iter()
            .collect();
        let page = page.to_owned();
        let (servers, failures) = (Vec::new(), Vec::new());
        Self { page, directory, replacements, demo, servers, run: 0, failures }
    }

    pub(crate) fn take(&mut self, step: &Step) {
        match step {
            Step::StopDemo => self.demo.interrupt(),
            Step::Command(command) if command.text.starts_with("weir demo") => {}
            Step::Command(command) if is_server(&command.text) => self.serve(&command.text),
            Step::Command(command) => self.run(command),
        }
    }

    fn serve(&mut self, text: &str) {
        let mut text = self.actual(text);
        if !text.contains("--admin-listen ") {
            // The default address is the demo's.
            text.push_str(&format!(" --admin-listen {}", free_address()));
        }
        let mut shell = self.shell(&format!("exec {text}"));
        let server = shell.stdout(Stdio::null()).stderr(file(&self.directory, "serve.log"));
        self.servers.push(Running(server.spawn().unwrap()));
        let (_, admin) = text.split_once("--admin-listen ").unwrap();
        let admin = admin.split_whitespace().next().unwrap().to_owned();
        wait_for(&format!("{}: {text}", self.page), || is_ready(&admin).then_some(()));
        self.run += 1;
    }

    fn run(&mut self, command: &Command) {
        let text = self.actual(&command.text);
        if let Some(tool) = missing_tool(&text) {
            eprintln!("skipped: {}: {} ({tool} is not installed)", self.page, command.text);
            return;
        }
        let mut child = Running(
            self.shell(&text).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        );
        let output = child.output(&format!("{}: {text}", self.page));
        let printed = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        let errors = String::from_utf8_lossy(&output.stderr);
        let patterns: Vec<_> = command.output.iter().map(|line| self.actual(line)).collect();
        let lines: Vec<_> = printed.lines().collect();
        if !output.status.success() || !page::matches(&patterns, &lines) {
            self.failures.push(format!(
                "{}: $ {text}\n{}, and it printed:\n{printed}{errors}\ninstead of:\n{}\n",
                self.page,
                output.status,
                patterns.join("\n")
            ));
        }
        self.run += 1;
    }

    fn shell(&self, text: &str) -> Program {
        let mut shell = Program::new("bash");
        let binaries = PathBuf::from(env!("CARGO_BIN_EXE_weir")).parent().unwrap().to_owned();
        let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
        shell.args(["-c", text]).env("PATH", path).env_remove("WEIR_LOG");
        // Never the cluster of whoever runs the tests.
        shell.env("KUBECONFIG", self.directory.join("demo/kubeconfig"));
        shell.current_dir(&self.directory).stdin(Stdio::null());
        shell
    }

    fn actual(&self, text: &str) -> String {
        let replace = |text: String, one: &Replacement| text.replace(one.written, &one.actual);
        self.replacements.iter().fold(text.to_owned(), replace)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn interrupt(&mut self) {
        let pid = self.0.id().to_string();
        assert!(Program::new("kill").args(["-INT", &pid]).status().unwrap().success());
        wait_for("the end of the demo", || self.0.try_wait().unwrap());
    }

    fn output(&mut self, what: &str) -> Output {
        let read = |pipe: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.unwrap().read_to_end(&mut bytes).unwrap();
                bytes
            })
        };
        let stdout = self.0.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let stderr = self.0.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let (stdout, stderr) = (read(stdout), read(stderr));
        let status = wait_for(what, || self.0.try_wait().unwrap());
        Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn weir() -> Program {
    Program::new(env!("CARGO_BIN_EXE_weir"))
}

fn file(directory: &std::path::Path, name: &str) -> fs::File {
    fs::File::create(directory.join(name)).unwrap()
}

/// An address that was free a moment ago.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The loopback addresses with plain HTTP on some lines.
fn addresses(lines: &[&str]) -> impl Iterator<Item = String> {
    let urls = lines.iter().flat_map(|line| line.split("http://127.0.0.1:").skip(1));
    urls.map(|rest| {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        format!("127.0.0.1:{}", rest.get(..digits).unwrap())
    })
}

/// Whether an admin listener says that its Weir is ready.
fn is_ready(address: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream
            .write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer.starts_with("HTTP/1.1 200 "))
    };
    ask().unwrap_or_default()
}

/// Whether a command is a Weir that runs until it is stopped.
fn is_server(text: &str) -> bool {
    let commands = ["weir serve -", "weir shadow -"];
    commands.iter().any(|command| text.starts_with(command)) && !text.contains("--help")
}

/// The first program of a command, or of a part after a pipe, that is not installed.
fn missing_tool(text: &str) -> Option<&str> {
    let words = text.split('|').filter_map(|part| part.split_whitespace().next());
    words.filter(|word| TOOLS.contains(word)).find(|word| {
        let lookup = Program::new("sh").args(["-c", &format!("command -v {word}")]).output();
        !lookup.unwrap().status.success()
    })
}

/// The programs that a machine may lack.
const TOOLS: [&str; 7] = ["kubectl", "curl", "openssl", "jq", "promtool", "helm", "awk"];

fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < TIMEOUT, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
