//! Tests of reading, refusing and rotating credentials.

use std::path::{Path, PathBuf};

use http::header::AUTHORIZATION;
use http::{Request, Response};

use super::*;
use crate::upstream::testing::{self, Ca, ServerOptions, TestServer, answer, metrics};
use crate::upstream::{TrafficClass, Upstream, empty_body};

async fn load(path: PathBuf) -> Result<Arc<Credentials>, UpstreamError> {
    Credentials::load(&testing::config(None, Some(path), true)).await
}

async fn refused(path: PathBuf) -> String {
    match load(path).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("not refused"),
    }
}

/// Writes a kubeconfig for plain HTTP, so that no certificate is needed.
fn write(directory: &Path, cluster: &str, user: &str) -> PathBuf {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u, namespace: team}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:1/prefix/'{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    );
    let path = directory.join("config");
    std::fs::write(&path, text).unwrap();
    path
}

/// Writes a script for `sh`. A new file cannot always be executed while other tests fork.
fn script(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("plugin");
    std::fs::write(&path, text).unwrap();
    path
}

async fn header(credentials: &Credentials) -> String {
    let header = credentials.current().token_source.header().await.unwrap().unwrap();
    assert!(header.is_sensitive());
    header.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_kubeconfig_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let user = "token: abc, as: jane, as-groups: [a, b], as-user-extra: {Acme.com/x y: [z]}";
    let credentials = load(write(directory.path(), "", user)).await.unwrap();
    let identity = credentials.current();
    assert_eq!(identity.default_namespace, "team");
    assert_eq!(identity.endpoint.to_string(), "http://127.0.0.1:1/prefix");
    assert_eq!(header(&credentials).await, "Bearer abc");
    let headers = &identity.impersonation;
    assert_eq!(headers["impersonate-user"], "jane");
    assert_eq!(headers.get_all("impersonate-group").iter().count(), 2);
    assert_eq!(headers["impersonate-extra-acme.com%2fx%20y"], "z");
}

#[tokio::test]
async fn a_password_or_an_id_token_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for (user, expected) in [
        ("username: me, password: pass word", "Basic bWU6cGFzcyB3b3Jk"),
        ("auth-provider: {name: oidc, config: {id-token: abc}}", "Bearer abc"),
    ] {
        let credentials = load(write(path, "", user)).await.unwrap();
        assert_eq!(header(&credentials).await, expected);
    }
    for name in ["gcp", "azure", "oidc"] {
        let user = format!("auth-provider: {{name: {name}, config: {{access-token: hunter2}}}}");
        let error = refused(write(path, "", &user)).await;
        assert!(error.contains(name) && error.contains("exec plugin"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let broken = refused(write(path, "", r#"token: "hunter2\nx""#)).await;
    assert!(broken.contains("line breaks") && !broken.contains("hunter2"), "{broken}");
}

#[tokio::test]
async fn errors_of_kubeconfigs_name_the_cause_and_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let missing = refused(path.join("nowhere")).await;
    assert!(missing.contains("nowhere") && missing.contains("No such file"), "{missing}");
    let proxy = refused(write(path, ", proxy-url: 'ftp://p'", "token: hunter2")).await;
    assert!(proxy.contains("proxy-url"), "{proxy}");
    let token_file = refused(write(path, "", "tokenFile: gone")).await;
    assert!(token_file.contains("gone"), "{token_file}");
    let broken = path.join("broken");
    std::fs::write(&broken, "users:\n- name: u\n  user:\n    token: [hunter2\n  x: }").unwrap();
    let broken = refused(broken).await;
    assert!(broken.contains("broken") && !broken.contains("hunter2"), "{broken}");
    let other = testing::config(None, Some(write(path, "", "token: hunter2")), true);
    let other = UpstreamConfig { context: Some("prod".to_owned()), ..other };
    let error = Credentials::load(&other).await.err().unwrap().to_string();
    assert!(error.contains("no context \"prod\"") && !error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn errors_of_exec_plugins_contain_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let exec = |command: &str, plugin: &Path, more: &str| {
        let plugin = plugin.display();
        format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, command: '{command}', \
             args: ['{plugin}'], env: [{{name: S, value: hunter2}}]{more}}}"
        )
    };
    let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"abc","expirationTimestamp":"2999-01-01T00:00:00Z"}}"#;
    let plugin = script(path, &format!("echo '{credential}'"));
    let credentials = load(write(path, "", &exec("sh", &plugin, ""))).await.unwrap();
    assert_eq!(header(&credentials).await, "Bearer abc");
    assert!(credentials.current().token_source.is_exec());

    // A plugin may write the fields of a certificate without content.
    let empty = credential
        .replace(r#""token""#, r#""clientCertificateData":"","clientKeyData":"","token""#);
    let plugin = script(path, &format!("echo '{empty}'"));
    let credentials = load(write(path, "", &exec("sh", &plugin, ""))).await.unwrap();
    assert_eq!(header(&credentials).await, "Bearer abc");

    let terminal =
        refused(write(path, "", &exec("sh", &plugin, ", interactiveMode: Always"))).await;
    assert!(terminal.contains("terminal"), "{terminal}");
    let plugin = script(path, "echo hunter2; echo hunter2 >&2; exit 3");
    let failed = refused(write(path, "", &exec("sh", &plugin, ""))).await;
    assert!(failed.contains("plugin sh failed") && failed.contains("exit status: 3"), "{failed}");
    assert!(!failed.contains("hunter2"), "{failed}");
    let garbage =
        refused(write(path, "", &exec("sh", &script(path, "echo 'hunter2: ['"), ""))).await;
    assert!(garbage.contains("ExecCredential") && !garbage.contains("hunter2"), "{garbage}");
    let absent = refused(write(path, "", &exec("/absent", path, ""))).await;
    assert!(absent.contains("absent") && absent.contains("cannot be run"), "{absent}");
}

#[tokio::test]
async fn concurrent_requests_run_a_failing_plugin_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let runs = path.join("runs");
    // The token is always expired. The plugin works while the credentials are loaded, and fails
    // afterwards.
    let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"abc","expirationTimestamp":"2000-01-01T00:00:00Z"}}"#;
    let text = format!(
        "echo run >> '{runs}'; [ $(wc -l < '{runs}') -le 2 ] || exit 1; echo '{credential}'",
        runs = runs.display()
    );
    let plugin = script(path, &text);
    let user = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['{}']}}",
        plugin.display()
    );
    let credentials = load(write(path, "", &user)).await.unwrap();
    let identity = credentials.current();
    let headers = (0..20).map(|_| identity.token_source.header());
    let headers = futures_util::future::join_all(headers).await;
    assert!(headers.iter().all(Result::is_err));
    assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 3);
}

#[tokio::test]
async fn a_token_file_rotates_and_its_removal_keeps_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "one\n").unwrap();
    let credentials = load(write(directory.path(), "", "tokenFile: token")).await.unwrap();
    assert_eq!(header(&credentials).await, "Bearer one");
    assert!(!credentials.refresh(false).await.unwrap(), "nothing changed");
    std::fs::write(&token, "two\n").unwrap();
    assert!(credentials.refresh(false).await.unwrap());
    assert_eq!(header(&credentials).await, "Bearer two");
    assert_eq!(credentials.current().tls_generation, 0, "connections stay open");
    std::fs::remove_file(&token).unwrap();
    assert!(credentials.refresh(false).await.is_err());
    assert_eq!(header(&credentials).await, "Bearer two");
}

#[tokio::test]
async fn a_token_file_counts_more_than_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "one\n").unwrap();
    let user = "token: old, tokenFile: token";
    let credentials = load(write(directory.path(), "", user)).await.unwrap();
    assert_eq!(header(&credentials).await, "Bearer one");
    std::fs::write(&token, "two\n").unwrap();
    assert!(credentials.refresh(false).await.unwrap());
    assert_eq!(header(&credentials).await, "Bearer two");
    let user = "token: '', tokenFile: token";
    let credentials = load(write(directory.path(), "", user)).await.unwrap();
    assert_eq!(header(&credentials).await, "Bearer two");
}

#[tokio::test]
async fn a_reload_keeps_context_and_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "", "token: one");
    let credentials = load(path.clone()).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("current-context: c", "current-context: x")).unwrap();
    assert!(credentials.refresh(false).await.unwrap(), "the context is pinned");
    std::fs::write(&path, text.replace("127.0.0.1:1", "127.0.0.1:2")).unwrap();
    let error = credentials.refresh(false).await.unwrap_err().to_string();
    assert!(error.contains("another server"), "{error}");
}

#[tokio::test]
async fn an_http_address_has_no_credentials() {
    let config = testing::config(Some("http://127.0.0.1:1".to_owned()), None, true);
    let credentials = Credentials::load(&config).await.unwrap();
    assert!(credentials.current().token_source.header().await.unwrap().is_none());
}

#[tokio::test]
async fn a_new_authority_applies_to_new_connections() {
    let (old, new) = (Ca::new(), Ca::new());
    let start = |ca: &Ca| {
        let tls = Some(ca.server(&["127.0.0.1"], &["h2"]));
        TestServer::start(
            ServerOptions { tls, ..ServerOptions::http2() },
            |request: Request<_>| async move {
                answer(200, request.headers()[AUTHORIZATION].as_bytes().to_vec())
            },
        )
    };
    let (server, after) = (start(&old).await, start(&new).await);
    let directory = tempfile::tempdir().unwrap();
    let path = crate::upstream::tests::kubeconfig(directory.path(), &server, &old, "token: a");
    let upstream =
        Upstream::new(&testing::config(None, Some(path), true), metrics()).await.unwrap();
    let ask =
        || upstream.send(TrafficClass::Request, Request::get("/x").body(empty_body()).unwrap());
    assert_eq!(ask().await.map(|response| response.status().as_u16()).unwrap(), 200);
    assert_eq!(ask().await.map(|response| response.status().as_u16()).unwrap(), 200);
    assert_eq!(server.accepted(), 1);

    // The old server is no longer trusted: open connections get no new requests.
    std::fs::write(directory.path().join("ca.crt"), &new.pem).unwrap();
    assert!(upstream.inner.credentials.refresh(false).await.unwrap());
    assert!(ask().await.map(Response::into_parts).is_err());
    assert_eq!(server.accepted(), 2);
    drop(after);
    std::fs::write(directory.path().join("ca.crt"), [old.pem.clone(), new.pem].concat()).unwrap();
    assert!(upstream.inner.credentials.refresh(false).await.unwrap());
    assert_eq!(ask().await.map(|response| response.status().as_u16()).unwrap(), 200);
}

#[tokio::test]
async fn an_unverified_server_is_answered_only_if_the_kubeconfig_says_so() {
    let tls = Some(Ca::new().server(&["other.example"], &["h2"]));
    let options = ServerOptions { tls, ..ServerOptions::http2() };
    let server = TestServer::start(options, |_| async { answer(200, "") }).await;
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "", "token: a");
    let text = std::fs::read_to_string(&path).unwrap();
    for (insecure, is_answered) in [(", insecure-skip-tls-verify: true", true), ("", false)] {
        let url = format!("https://{}'{insecure}", server.address);
        std::fs::write(&path, text.replace("http://127.0.0.1:1/prefix/'", &url)).unwrap();
        let upstream =
            Upstream::new(&testing::config(None, Some(path.clone()), true), metrics()).await;
        let request = Request::get("/x").body(empty_body()).unwrap();
        let answered = match upstream {
            Ok(upstream) => upstream.send(TrafficClass::Request, request).await.is_ok(),
            // Without an authority of its own the machine must have some.
            Err(_) => false,
        };
        assert_eq!(answered, is_answered, "{insecure:?}");
    }
}

#[tokio::test]
async fn gzip_is_accepted_over_a_link_unless_the_kubeconfig_forbids_it() {
    let directory = tempfile::tempdir().unwrap();
    for (cluster, server, is_accepted) in [
        ("", "192.0.2.1:1", true),
        (", disable-compression: true", "192.0.2.1:1", false),
        ("", "127.0.0.1:1", false),
        ("", "[::1]:1", false),
        ("", "localhost:1", false),
    ] {
        let path = write(directory.path(), cluster, "token: a");
        let text = std::fs::read_to_string(&path).unwrap().replace("127.0.0.1:1", server);
        std::fs::write(&path, text).unwrap();
        let identity = load(path).await.unwrap().current();
        assert_eq!(identity.accepts_gzip(), is_accepted, "{server} {cluster}");
    }
}

#[tokio::test]
async fn only_a_401_for_weirs_own_credential_reloads_it() {
    let config = testing::config(Some("http://127.0.0.1:1".to_owned()), None, true);
    let own_credentials = Credentials::load(&config).await.unwrap();
    let bare = Credentials::derive(&own_credentials, PoolIdentity::Bare).await.unwrap();
    for (credentials, reloads) in [(own_credentials, true), (bare, false)] {
        credentials.unauthorized();
        assert_eq!(credentials.last_unauthorized.lock().is_some(), reloads);
    }
}

#[tokio::test]
async fn derived_credentials_never_change_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "", "tokenFile: token");
    let token = directory.path().join("token");
    std::fs::write(&token, "one").unwrap();
    let credentials = load(path.clone()).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();

    // The kubeconfig changes to another server, another context, or nothing.
    for changed in [
        text.replace("127.0.0.1:1", "127.0.0.1:2"),
        text.replace("current-context: c", "current-context: x"),
        String::new(),
    ] {
        std::fs::write(&path, changed).unwrap();
        let bare = Credentials::derive(&credentials, PoolIdentity::Bare).await.unwrap();
        for _ in 0..2 {
            assert_eq!(bare.current().endpoint, credentials.current().endpoint);
            drop(credentials.refresh(false).await);
            assert!(!bare.refresh(false).await.unwrap(), "it has no files of its own");
        }
        std::fs::write(&path, &text).unwrap();
    }
}

#[tokio::test]
async fn derived_credentials_trust_the_same_authority() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let (old, new) = (Ca::new(), Ca::new());
    std::fs::write(file("ca.crt"), &old.pem).unwrap();
    std::fs::write(file("token"), "one").unwrap();
    let path = write(directory.path(), ", certificate-authority: ca.crt", "tokenFile: token");
    let text = std::fs::read_to_string(&path).unwrap().replace("http://", "https://");
    std::fs::write(&path, text).unwrap();
    let own_credentials = load(path).await.unwrap();
    let bare = Credentials::derive(&own_credentials, PoolIdentity::Bare).await.unwrap();
    let trusted =
        |credentials: &Credentials| credentials.current().cluster.config.root_cert.clone().unwrap();
    let generations =
        || [&own_credentials, &bare].map(|credentials| credentials.current().tls_generation);
    let first = trusted(&own_credentials);
    assert_eq!(trusted(&bare), first);

    // Without its token file, Weir does not load the new authority, nor do derived credentials.
    std::fs::write(file("ca.crt"), &new.pem).unwrap();
    std::fs::remove_file(file("token")).unwrap();
    assert!(own_credentials.refresh(false).await.is_err());
    assert!(!bare.refresh(false).await.unwrap());
    assert_eq!((trusted(&own_credentials), trusted(&bare)), (first.clone(), first.clone()));

    std::fs::write(file("token"), "two").unwrap();
    assert!(own_credentials.refresh(false).await.unwrap() && bare.refresh(false).await.unwrap());
    assert_ne!(trusted(&own_credentials), first);
    assert_eq!((trusted(&bare), generations()), (trusted(&own_credentials), [1, 1]));
    // A new token of Weir's does not change derived credentials.
    std::fs::write(file("token"), "three").unwrap();
    assert!(own_credentials.refresh(false).await.unwrap() && !bare.refresh(false).await.unwrap());
    assert_eq!(generations(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn derived_credentials_are_notified_of_a_reload() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "", "token: one");
    let credentials = load(path.clone()).await.unwrap();
    let bare = Credentials::derive(&credentials, PoolIdentity::Bare).await.unwrap();
    let woken = tokio::spawn({
        let bare = bare.clone();
        async move { bare.wait_for_base_change().await }
    });
    tokio::task::yield_now().await;
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("one", "two")).unwrap();
    assert!(credentials.refresh(false).await.unwrap());
    woken.await.unwrap();
}
