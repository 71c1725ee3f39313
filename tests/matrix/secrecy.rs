//! No output contains a secret: no log line at any level, no other output of Weir, no metric, audit
//! event or error.

use std::io::Read;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use http::Method;

use super::grants::secret;
use super::users::{HOLDERS, WEIR, users};
use super::world::World;
use crate::suite::wire::Call;

/// Searches all output of a Weir that ran a matrix with its log at `trace`.
pub(crate) async fn assert_no_secret_in_logs_and_metrics(world: &World) {
    let errors = errors(world).await;
    let (log, audit) = (world.weir.log(), world.audit());
    let mut outputs = vec![("log", log.clone()), ("audit", audit.clone()), ("errors", errors)];
    for path in PAGES {
        let (status, body) = world.weir.admin(path).unwrap_or_default();
        assert_eq!(status, 200, "{path}: {body}");
        outputs.push((path, body));
    }
    outputs.push(("a support bundle", bundle(world)));
    let secrets = secrets(world);
    for (place, text) in &outputs {
        for (what, secret) in &secrets {
            let line = text.lines().find(|line| line.contains(secret.as_str()));
            assert!(line.is_none(), "{what} appears in {place}: {}", line.unwrap_or_default());
        }
    }
    // The search covered some output.
    assert!(log.lines().count() > 100, "the log is nearly empty");
    assert!(log.contains("TRACE"), "the log is not at its lowest level");
    assert!(
        audit.lines().count() > 100,
        "hardly anything was audited: {} events",
        audit.lines().count()
    );
    assert!(outputs.iter().any(|(place, text)| *place == "/metrics" && text.contains("weir_")));
    for line in audit.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        assert_eq!(event["kind"], "Event", "an audit event a line: {line}");
    }
}

/// The files of a support bundle, with all names.
fn bundle(world: &World) -> String {
    let path = world.pki.path("bundle.tar.gz");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["support-bundle", "--with-names", "--interval=0", "--admin"]);
    let output = command.arg(world.weir.admin_url()).arg("--output").arg(&path).output();
    let output = output.expect("the binary is built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let packed = std::fs::read(path).expect("the bundle was written");
    let mut files = Vec::new();
    flate2::read::MultiGzDecoder::new(&*packed).read_to_end(&mut files).expect("it is complete");
    let text = String::from_utf8_lossy(&files).into_owned();
    assert!(text.contains("configz.json"), "it has pages");
    text
}

/// The responses to wrong credentials and bad requests, the upstream's and Weir's own, with their
/// headers.
async fn errors(world: &World) -> String {
    let get = |path: &str| Call::get(path);
    let calls = [
        get("/api/v1/namespaces/a/secrets/nope?resourceVersion=0"),
        get("/api/v1/namespaces/a/configmaps?limit=x&resourceVersion=0"),
        get("/api/v1/namespaces/a/configmaps/x?resourceVersion=0").header("accept", "text/x"),
        get("/apis/nope.com/v1/things"),
        // Weir's own responses.
        get("/api/v1/namespaces/a/pods").header("connection", "close, x-remote-user"),
        get("/api/v1/namespaces/a/pods").header("connection", "close, authorization"),
        get("/api/v1/namespaces/a/pods").header("connection", "close, cookie"),
        Call::new(Method::TRACE, "/api/v1/namespaces/a/pods"),
    ];
    let (mut answers, mut count) = (String::new(), 0);
    for user in users(world) {
        let mut through = world.through.endpoint_of(&user).connection();
        for call in &calls {
            let mut call = call.clone();
            call.headers.extend(user.headers.iter().cloned());
            let answer = through.send(&call).await;
            if answer.status >= 400 {
                count += 1;
                answers +=
                    &format!("{:?}\n{}\n", answer.headers, String::from_utf8_lossy(&answer.body));
            }
        }
    }
    assert!(count > 100, "only {count} errors came");
    answers
}

/// Every secret text, in every form in which it is sent or stored.
fn secrets(world: &World) -> Vec<(&'static str, String)> {
    let tokens = &world.tokens;
    let mut secrets = vec![
        // The marker in every token, cookie and Secret.
        ("a token, a cookie or a secret", tokens.canary.clone()),
        ("a service account's token", tokens.robot.clone()),
        ("Weir's own token", tokens.token_of(WEIR)),
    ];
    let mut packed = vec![
        ("a secret in JSON", secret(&tokens.canary)),
        ("a packed token", tokens.robot.clone()),
    ];
    packed.extend(HOLDERS.iter().map(|(name, _)| ("a packed token", tokens.token_of(name))));
    for (what, text) in packed {
        secrets.extend(
            [STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD].map(|code| (what, code.encode(&text))),
        );
    }
    // A part of a token is secret too: the last part is the signature.
    let signature = tokens.robot.rsplit('.').next().unwrap_or_default();
    assert!(signature.len() > 20, "the token has a signature");
    secrets.push(("a signature", signature.to_owned()));
    let keys = world.pki.keys();
    assert!(keys.len() > 10, "clients' keys, and Weir's own two");
    for key in &keys {
        let inner = key.lines().filter(|line| !line.starts_with("-----") && line.len() >= KEY_LINE);
        let before = secrets.len();
        secrets.extend(inner.map(|line| ("a private key", line.to_owned())));
        assert!(secrets.len() > before, "a key has lines");
    }
    secrets
}

/// The pages of the admin listener.
const PAGES: [&str; 15] = [
    "/metrics",
    "/readyz?verbose",
    "/livez?verbose",
    "/statusz",
    "/flagz",
    "/configz",
    "/debug/memory",
    "/debug/connections?limit=1000",
    "/debug/log",
    "/debug/log/lines",
    "/api/overview",
    "/api/caches",
    "/api/events",
    "/api/reasons",
    "/api/limits",
];

/// The last line of a key may be short enough to appear elsewhere by chance.
const KEY_LINE: usize = 16;
