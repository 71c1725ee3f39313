//! Files on a real disk: rotation, failure and recovery.

use std::os::unix::fs::PermissionsExt;

use prometheus::Registry;

use super::*;
use crate::testing::eventually;

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn only_its_owner_may_read_a_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let mut file = LogFile::open(path.clone()).unwrap();
    file.write(b"one\n").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(LogFile::open(dir.path().join("missing/audit.log")).is_err());
}

#[test]
fn a_moved_file_is_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("audit.log"), dir.path().join("audit.log.1"));
    let mut file = LogFile::open(path.clone()).unwrap();
    file.write(b"one\n").unwrap();
    // The file is moved, as by logrotate without `create`.
    fs::rename(&path, &old).unwrap();
    file.write(b"two\n").unwrap();
    assert_eq!((text(&old).as_str(), text(&path).as_str()), ("one\n", "two\n"));
    // The file is moved, and a new one created.
    fs::rename(&path, &old).unwrap();
    File::create(&path).unwrap();
    file.write(b"three\n").unwrap();
    assert_eq!((text(&old).as_str(), text(&path).as_str()), ("two\n", "three\n"));
    // The file is copied and truncated.
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    file.write(b"four\n").unwrap();
    assert_eq!(text(&path), "four\n");
    fs::remove_file(&path).unwrap();
    file.write(b"five\n").unwrap();
    assert_eq!(text(&path), "five\n");
}

#[test]
fn an_incomplete_line_after_a_crash_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    fs::write(&path, "one\n{\"kind\":").unwrap();
    let mut file = LogFile::open(path.clone()).unwrap();
    file.write(b"two\n").unwrap();
    file.write(b"three\n").unwrap();
    assert_eq!(text(&path), "one\n{\"kind\":\ntwo\nthree\n");
}

#[test]
fn a_missing_directory_is_an_error_until_it_exists_again() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let path = logs.join("audit.log");
    let mut file = LogFile::open(path.clone()).unwrap();
    fs::remove_dir_all(&logs).unwrap();
    assert_eq!(file.write(b"one\n").unwrap_err().0, 0);
    fs::create_dir(&logs).unwrap();
    file.write(b"two\n").unwrap();
    assert_eq!(text(&path), "two\n");
}

#[test]
fn a_full_disk_is_an_error() {
    let mut file = LogFile::open("/dev/full".into()).unwrap();
    let (written, error) = file.write(b"one\n").unwrap_err();
    assert_eq!((written, error.kind()), (0, ErrorKind::StorageFull));
}

/// Writes seven bytes of its first batch, then fails.
struct Faulty(bool, std::sync::mpsc::Sender<Vec<u8>>);

impl Output for Faulty {
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        if std::mem::replace(&mut self.0, false) {
            return Err((7, ErrorKind::StorageFull.into()));
        }
        self.1.send(lines.to_vec()).unwrap();
        Ok(())
    }
}

#[tokio::test]
async fn events_lost_by_an_error_are_counted_and_the_next_batch_is_written() {
    let registry = Registry::new();
    let metrics = AuditMetrics::register(&registry).unwrap();
    let queue = Arc::new(Queue::new(metrics.clone()));
    let (sender, written) = std::sync::mpsc::channel();
    queue.try_push(b"one\ntwo\nthree\n", 3).unwrap();
    let writer = std::thread::spawn({
        let (queue, metrics) = (queue.clone(), metrics);
        move || run(&queue, Faulty(true, sender), &metrics)
    });
    let lost = || {
        let families = registry.gather();
        let family = families.iter().find(|f| f.name() == "weir_audit_events_lost_total").unwrap();
        let metric = |cause| {
            let has_cause = |m: &&prometheus::proto::Metric| m.get_label()[0].value() == cause;
            family.get_metric().iter().find(has_cause).unwrap().get_counter().get_value()
        };
        (metric("error"), metric("closed"))
    };
    eventually("a lost event", || lost().0 > 0.0).await;
    queue.try_push(b"four\n", 1).unwrap();
    assert_eq!(written.recv().unwrap(), b"four\n");
    queue.close();
    writer.join().unwrap();
    queue.try_push(b"five\n", 1).unwrap();
    // "one" and a part of "two" were written.
    assert_eq!(lost(), (2.0, 1.0));
}
