//! Tests of exec plugins that hang, leave processes behind, or write too much.

use std::path::Path;

use super::*;
use crate::testing::eventually;

/// Returns a plugin that is a script for `sh`.
fn plugin(directory: &Path, script: &str) -> ExecConfig {
    let path = directory.join("plugin");
    std::fs::write(&path, script).unwrap();
    let value = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": [path],
        "interactiveMode": "Never",
    });
    serde_json::from_value(value).unwrap()
}

fn credential(token: &str, expires: &str) -> String {
    format!(
        r#"{{"kind":"ExecCredential","status":{{"token":"{token}","expirationTimestamp":"{expires}"}}}}"#
    )
}

/// Whether a process runs. One that has ended and was not waited for does not.
fn runs(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    status.is_ok_and(|status| !status.contains(") Z "))
}

async fn written(path: &Path) -> String {
    eventually("the script writes", || {
        std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'))
    })
    .await;
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn a_plugin_that_hangs_is_killed_with_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let pids = directory.path().join("pids");
    let script = format!("sleep 1000 & echo $! $$ > '{}'; wait", pids.display());
    let exec = plugin(directory.path(), &script);
    let running = tokio::spawn(async move { run(&exec, "test").await });
    let pids = written(&pids).await;
    assert!(pids.split_whitespace().all(runs));
    // The time limit passes at once.
    tokio::time::pause();
    let error = running.await.unwrap().map(drop).unwrap_err().to_string();
    assert!(error.contains("plugin sh did not end within 30s and was killed"), "{error}");
    tokio::time::resume();
    eventually("the processes end", || !pids.split_whitespace().any(runs)).await;
}

/// The output is complete when nobody can write to it. client-go waits for the child, too.
#[tokio::test]
async fn a_child_that_keeps_the_output_open_is_killed_at_the_time_limit() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    let script = format!("sleep 1000 & echo $! > '{}'", pid.display());
    let exec = plugin(directory.path(), &script);
    let running = tokio::spawn(async move { run(&exec, "test").await });
    let pid = written(&pid).await;
    tokio::time::pause();
    let error = running.await.unwrap().map(drop).unwrap_err().to_string();
    assert!(error.contains("was killed"), "{error}");
    tokio::time::resume();
    eventually("the child ends", || !runs(&pid)).await;
}

#[tokio::test]
async fn a_child_that_left_its_output_lives_on() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    let text = credential("abc", "2999-01-01T00:00:00Z");
    let script =
        format!("sleep 1000 > /dev/null 2>&1 & echo $! > '{}'; echo '{text}'", pid.display());
    let exec = plugin(directory.path(), &script);
    run(&exec, "test").await.map(drop).unwrap();
    let pid = written(&pid).await;
    assert!(runs(&pid));
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

#[tokio::test]
async fn an_endless_output_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let exec = plugin(directory.path(), "exec yes hunter2");
    let error = run(&exec, "test").await.map(drop).unwrap_err().to_string();
    assert!(error.contains("too much") && !error.contains("hunter2"), "{error}");
}

async fn first(exec: ExecConfig) -> Arc<ExecPlugin> {
    let first = tokio::task::spawn_blocking(move || first_run(&exec, "test"));
    match first.await.unwrap().unwrap() {
        Credential::Token(plugin) => plugin,
        Credential::Certificate { .. } => panic!("a certificate"),
    }
}

/// A script that prints `first` in its first run, and then does `later`.
fn first_then(directory: &Path, first: &str, later: &str) -> ExecConfig {
    let runs = directory.join("runs");
    let runs = runs.display();
    let script = format!(
        "echo run >> '{runs}'; if [ $(wc -l < '{runs}') = 1 ]; then echo '{first}'; else {later}; fi"
    );
    plugin(directory, &script)
}

#[tokio::test]
async fn a_hang_delays_no_request_while_the_token_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let soon = (Timestamp::now() + SignedDuration::from_secs(50)).to_string();
    let exec = first_then(directory.path(), &credential("abc", &soon), "exec sleep 1000");
    let plugin = first(exec).await;
    for _ in 0..10 {
        assert_eq!(Arc::clone(&plugin).header().await.unwrap(), "Bearer abc");
    }
    eventually("the plugin runs", || plugin.runs.try_acquire().is_none()).await;
    tokio::time::pause();
    drop(plugin.runs.acquire().await);
    let failure = plugin.last_failure.lock().take().unwrap().1.to_string();
    assert!(failure.contains("was killed"), "{failure}");
}

#[tokio::test]
async fn a_plugin_that_hung_is_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let past = credential("abc", "2000-01-01T00:00:00Z");
    let hangs = directory.path().join("hangs");
    std::fs::write(&hangs, "").unwrap();
    let later = format!(
        "[ -e '{}' ] && exec sleep 1000; echo '{}'",
        hangs.display(),
        credential("new", "2999-01-01T00:00:00Z")
    );
    let plugin = first(first_then(directory.path(), &past, &later)).await;
    let requests = (0..20).map(|_| Arc::clone(&plugin).header());
    let requests = tokio::spawn(futures_util::future::join_all(requests));
    let runs = directory.path().join("runs");
    eventually("the plugin runs again", || {
        std::fs::read_to_string(&runs).unwrap().lines().count() == 2
    })
    .await;
    tokio::time::pause();
    let failed = requests.await.unwrap();
    assert!(failed.iter().all(Result::is_err), "all learn of the one run");
    assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 2);
    tokio::time::advance(FAILURE_INTERVAL).await;
    tokio::time::resume();
    std::fs::remove_file(&hangs).unwrap();
    assert_eq!(plugin.header().await.unwrap(), "Bearer new");
}
