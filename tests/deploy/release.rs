//! The release: the order of its steps, and what its scripts make.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{documents, root};

/// A workflow that a person starts, for a tag or a branch, only compares.
#[test]
fn only_a_pushed_tag_is_published() {
    let jobs = jobs();
    let writes = |job: &Value| {
        let permissions = job["permissions"].as_object().into_iter().flatten();
        permissions.filter(|(_, right)| *right == "write").count() > 0
    };
    let writing: Vec<_> = jobs.as_object().unwrap().iter().filter(|(_, job)| writes(job)).collect();
    let [(name, job)] = writing[..] else { panic!("several jobs may write: {writing:?}") };
    assert_eq!(name, "publish");
    assert_eq!(job["if"], "github.event_name == 'push'");
    let workflow = documents(&root().join(WORKFLOW)).remove(0);
    let pushes = &workflow["on"]["push"];
    assert!(pushes["tags"].is_array() && pushes["branches"].is_null(), "{pushes}");
}

/// Attestations fail where a file or a credential misses. Nothing is published before them.
#[test]
fn nothing_is_public_before_the_last_step() {
    let jobs = jobs();
    let steps = jobs["publish"]["steps"].as_array().unwrap();
    let (last, before) = steps.split_last().unwrap();
    let attests = |step: &Value| step["uses"].as_str().unwrap_or_default().contains("/attest@");
    assert!(before.iter().filter(|step| attests(step)).count() >= 6 && !attests(last));
    for step in before {
        let run = step["run"].as_str().unwrap_or_default();
        for public in ["helm push", "--draft=false", "/weir:$version"] {
            assert!(!run.contains(public), "{public} is before the last step");
        }
        if run.contains("gh release create") {
            assert!(run.contains("--draft") && run.contains("--prerelease"), "{run}");
        }
    }
    for public in ["helm push", "--draft=false", "/weir:$version", "== \"$DIGEST\""] {
        assert!(last["run"].as_str().unwrap().contains(public), "{public}");
    }
}

/// Attestations are pushed with the credentials of Docker's file, which `buildah login` does not
/// write by itself. Each kind is of the image's digest too.
#[test]
fn the_image_is_attested_with_its_registrys_credentials() {
    let jobs = jobs();
    let publish = &jobs["publish"];
    let file = publish["env"]["REGISTRY_AUTH_FILE"].as_str().unwrap();
    assert!(file.ends_with("/.docker/config.json"), "{file}");
    let steps = publish["steps"].as_array().unwrap();
    let logins: Vec<_> = steps
        .iter()
        .filter_map(|step| step["run"].as_str()?.split_once("buildah login "))
        .collect();
    let [(_, login)] = logins[..] else { panic!("{} logins", logins.len()) };
    assert!(login.starts_with("--authfile \"$REGISTRY_AUTH_FILE\""), "{login}");
    let of_image: Vec<_> = steps
        .iter()
        .map(|step| &step["with"])
        .filter(|with| !with["subject-digest"].is_null())
        .collect();
    assert_eq!(of_image.len(), 3);
    let boms = of_image.iter().filter_map(|with| with["sbom-path"].as_str());
    assert_eq!(boms.count(), 2);
    assert!(of_image.iter().all(|with| with["push-to-registry"] == true));
}

/// Else the binary would need the glibc of whatever the runner has.
#[test]
fn binaries_are_built_in_a_pinned_image() {
    let jobs = jobs();
    let image = jobs["build"]["container"]["image"].as_str().unwrap();
    let (name, digest) = image.split_once("@sha256:").unwrap();
    assert_eq!(name, "debian:12");
    assert_eq!(digest.len(), 64);
}

/// These three fields are those by which actions/attest knows an SBOM.
#[test]
fn an_sbom_has_a_serial_number_of_its_build() {
    if is_missing("jq") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("weir.cdx.json");
    // As cargo-cyclonedx 0.5.9 writes it with $SOURCE_DATE_EPOCH.
    let written =
        r#"{"bomFormat":"CycloneDX","specVersion":"1.3","version":1,"serialNumber":null}"#;
    let serial_number = |name: &str| {
        fs::write(&file, written).unwrap();
        assert!(script("deploy/sbom", &[file.to_str().unwrap(), name]));
        let bom: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!((&bom["bomFormat"], &bom["specVersion"]), (&"CycloneDX".into(), &"1.3".into()));
        bom["serialNumber"].as_str().unwrap().to_owned()
    };
    let amd64 = "https://github.com/acme/weir@0.1.0-amd64-0123456789";
    // uuid5(NAMESPACE_URL, ...) of Python.
    assert_eq!(serial_number(amd64), "urn:uuid:4125d288-1ddc-56cb-a536-9705a1bc4b5d");
    let arm64 = "https://github.com/acme/weir@0.1.0-arm64-0123456789";
    assert_eq!(serial_number(arm64), "urn:uuid:914c0b9c-5c69-5952-9029-06f7384bd2e2");
    fs::write(&file, r#"{"spdxVersion":"SPDX-2.3"}"#).unwrap();
    assert!(!script("deploy/sbom", &[file.to_str().unwrap(), amd64]));
}

/// The chart that is published installs the image that is published.
#[test]
fn a_packaged_chart_names_the_published_image() {
    let directory = tempfile::tempdir().unwrap();
    let package = |repository: &str| {
        let archive = directory.path().join("weir.tgz");
        assert!(script("deploy/chart", &[archive.to_str().unwrap(), repository]));
        let unpacked = directory.path().join("unpacked");
        fs::create_dir_all(&unpacked).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(&archive).arg("-C").arg(&unpacked);
        assert!(tar.status().unwrap().success());
        let read = |file: &str| documents(&unpacked.join("weir").join(file)).remove(0);
        (read("Chart.yaml"), read("values.yaml"))
    };
    let (chart, values) = package("https://github.com/Acme/weir");
    let image = format!("ghcr.io/acme/weir:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(values["image"]["repository"], "ghcr.io/acme/weir");
    assert_eq!(values["image"]["tag"], "", "the tag is the chart's appVersion");
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["home"], "https://github.com/Acme/weir");
    assert!(chart["annotations"]["artifacthub.io/images"].as_str().unwrap().contains(&image));
    let (chart, values) = package("https://example.com/weir");
    assert_eq!(values["image"]["repository"], "weir");
    assert!(chart["home"].is_null());
}

const WORKFLOW: &str = ".github/workflows/release.yml";

fn jobs() -> Value {
    documents(&root().join(WORKFLOW)).remove(0)["jobs"].take()
}

fn script(path: &str, arguments: &[&str]) -> bool {
    let mut script = Command::new(root().join(path));
    let output = script.args(arguments).env("SOURCE_DATE_EPOCH", "1").output().unwrap();
    output.status.success()
}

fn is_missing(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap();
    let missing = !std::env::split_paths(&paths).any(|path| Path::new(&path).join(tool).exists());
    if missing {
        eprintln!("skipped: {tool} is not installed");
    }
    missing
}
