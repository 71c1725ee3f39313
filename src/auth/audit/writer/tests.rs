//! Files on a real disk: rotation, failure and recovery.

use std::os::unix::fs::PermissionsExt;

use prometheus::Registry;

use super::*;

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_new_file_is_for_its_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let mut file = LogFile::open(path.clone()).unwrap();
    file.write(b"one\n").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(LogFile::open(dir.path().join("missing/audit.log")).is_err());
}

#[test]
fn it_follows_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("audit.log"), dir.path().join("audit.log.1"));
    let mut file = LogFile::open(path.clone()).unwrap();
    file.write(b"one\n").unwrap();
    // Moved away, as logrotate does without `create`.
    fs::rename(&path, &old).unwrap();
    file.write(b"two\n").unwrap();
    assert_eq!((text(&old).as_str(), text(&path).as_str()), ("one\n", "two\n"));
    // Moved away and made anew.
    fs::rename(&path, &old).unwrap();
    File::create(&path).unwrap();
    file.write(b"three\n").unwrap();
    assert_eq!((text(&old).as_str(), text(&path).as_str()), ("two\n", "three\n"));
    // Copied and truncated.
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    file.write(b"four\n").unwrap();
    assert_eq!(text(&path), "four\n");
    fs::remove_file(&path).unwrap();
    file.write(b"five\n").unwrap();
    assert_eq!(text(&path), "five\n");
}

#[test]
fn a_line_that_a_crash_left_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    fs::write(&path, "one\n{\"kind\":").unwrap();
    let mut file = LogFile::open(path.clone()).unwrap();
    file.write(b"two\n").unwrap();
    file.write(b"three\n").unwrap();
    assert_eq!(text(&path), "one\n{\"kind\":\ntwo\nthree\n");
}

#[test]
fn a_directory_that_is_gone_is_an_error_until_it_is_back() {
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

/// Takes seven bytes of its first batch.
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

#[test]
fn what_is_lost_to_an_error_is_counted_and_the_next_batch_is_tried() {
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
            let of = |m: &&prometheus::proto::Metric| m.get_label()[0].value() == cause;
            family.get_metric().iter().find(of).unwrap().get_counter().get_value()
        };
        (metric("error"), metric("closed"))
    };
    while lost().0 == 0.0 {
        std::thread::yield_now();
    }
    queue.try_push(b"four\n", 1).unwrap();
    assert_eq!(written.recv().unwrap(), b"four\n");
    queue.close();
    writer.join().unwrap();
    queue.try_push(b"five\n", 1).unwrap();
    // "one" was written, of "two" a part.
    assert_eq!(lost(), (2.0, 1.0));
}
