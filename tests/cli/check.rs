//! `weir check FILE`: the effective configuration, warnings, and all faults with their places.

use crate::{stderr, weir, write};

#[test]
fn check_prints_the_effective_configuration() {
    for file in ["config/weir.yaml", "config/sidecar.yaml"] {
        let first = weir(&["check", file]);
        assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
        let dir = tempfile::tempdir().unwrap();
        let printed = write(&dir, "printed.yaml", &String::from_utf8_lossy(&first.stdout));
        assert_eq!(weir(&["check", &printed]).stdout, first.stdout);
    }
}

#[test]
fn check_warns_of_settings_that_contradict_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let text = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\nauthentication: { mode: gateway }\nflowControl: { rules: [{ name: all, action: deny }] }\n";
    let checked = weir(&["check", &write(&dir, "banned.yaml", text)]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    let warning = "weir: warning: flowControl.rules[0].action: refuses every request";
    let warnings = stderr(&checked);
    assert!(warnings.lines().any(|line| line.starts_with(warning)), "{warnings}");
    assert!(!checked.stdout.is_empty(), "the configuration is printed");
}

#[test]
fn each_configuration_error_is_a_line_with_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
    let bad =
        write(&dir, "bad.yaml", &format!("{head}cache:\n  forwardBudgit: 1\n  maxStaleness: x\n"));
    let wrong = write(
        &dir,
        "wrong.yaml",
        &format!("{head}cache: {{ forwardBudget: 0, maxStaleness: x }}\n"),
    );
    let other = write(&dir, "other.yaml", "apiVersion: v1\nkind: Config\nusers: []\n");
    let broken = write(&dir, "broken.yaml", &format!("{head}cache: [\n"));
    for (args, lines) in [
        (
            vec!["check", &bad],
            vec![
                "bad.yaml:4:3: cache.forwardBudgit: there is no such field; did you mean forwardBudget?",
                "bad.yaml:5:17: cache.maxStaleness: ",
            ],
        ),
        (
            vec!["check", &wrong],
            vec!["wrong.yaml:3:25: cache.forwardBudget: ", "wrong.yaml:3:42: cache.maxStaleness: "],
        ),
        (vec!["check", &other], vec!["other.yaml: apiVersion must be"]),
        (vec!["check", &broken], vec!["broken.yaml:"]),
        (vec!["check", "/nonexistent"], vec!["cannot read /nonexistent: "]),
        (vec!["serve", "--config", &wrong], vec!["cache.forwardBudget"]),
    ] {
        let output = weir(&args);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert_eq!(message.lines().count(), lines.len(), "{message}");
        for (line, part) in message.lines().zip(lines) {
            assert!(line.starts_with("weir: ") && line.contains(part), "{args:?}: {message}");
        }
    }
    // clap's own message, with the usage.
    for args in [&["serve", "--listen", "https://0.0.0.0:6440"][..], &["serve", "-x"], &[]] {
        assert_eq!(weir(args).status.code(), Some(2), "{args:?}");
    }
    let refused = stderr(&weir(&["serve", "--listen", "https://0.0.0.0:6440"]));
    assert!(refused.contains("not a loopback address"), "{refused}");
}
