//! Nothing secret is told: not in a log at any level, not in metrics, not in audit events.

use base64::Engine;

use super::grants::secret;
use super::world::World;

/// Looks through all that a Weir has told; a matrix has been run with its log at `trace`.
pub(crate) fn nothing_is_told(world: &World) {
    let (log, audit) = (world.weir.log(), world.audit());
    let mut told = vec![("log", log.clone()), ("audit", audit.clone())];
    for path in ["/metrics", "/readyz?verbose", "/livez?verbose", "/debug/caches", "/debug"] {
        told.push((path, world.weir.admin(path).map(|(_, body)| body).unwrap_or_default()));
    }
    let secrets = secrets(world);
    for (place, text) in &told {
        for (what, secret) in &secrets {
            let line = text.lines().find(|line| line.contains(secret.as_str()));
            assert!(line.is_none(), "{what} is told in {place}: {}", line.unwrap_or_default());
        }
    }
    // There was something to look through.
    assert!(log.lines().count() > 100, "the log is nearly empty");
    assert!(
        audit.lines().count() > 100,
        "hardly anything was audited: {} events",
        audit.lines().count()
    );
    for line in audit.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        assert_eq!(event["kind"], "Event", "an audit event a line: {line}");
    }
}

fn secrets(world: &World) -> Vec<(&'static str, String)> {
    let value = secret(&world.tokens.canary);
    let mut secrets = vec![
        ("a token or a secret", world.tokens.canary.clone()),
        ("a secret in JSON", base64::engine::general_purpose::STANDARD.encode(value)),
        ("a service account's token", world.tokens.robot.clone()),
    ];
    // A token in parts is no less one: its last is the signature.
    let signature = world.tokens.robot.rsplit('.').next().unwrap_or_default();
    secrets.push(("a signature", signature.to_owned()));
    for key in &world.pki.keys {
        let inner = key.lines().filter(|line| !line.starts_with("-----"));
        secrets.extend(inner.take(1).map(|line| ("a private key", line.to_owned())));
    }
    secrets
}
