//! The manifests: valid, consistent with each other and with Weir's configuration, and without any
//! permission that Weir does not need.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "it reads the repository itself"
)]
#![expect(clippy::print_stderr, reason = "skipped checks are named")]

mod monitoring;
mod release;
mod schema;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use weir::config::file::ConfigFile;
use weir::config::resolve::Overrides;
use weir::config::{Config, Mode, ServerConfig};

#[test]
fn the_role_allows_only_list_and_watch_of_named_resources_and_metrics() {
    let rules = rules_of("manifests/rbac.yaml");
    assert!(rules.len() > 5);
    let (paths, rules): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| rule["resources"].is_null());
    assert_eq!(paths, [serde_json::json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})]);
    for rule in &rules {
        assert_eq!(texts(&rule["verbs"]), ["list", "watch"], "{rule}");
        let resources = texts(&rule["resources"]);
        for word in texts(&rule["apiGroups"]).iter().chain(&resources) {
            assert!(!word.contains('*'), "{rule}");
        }
        assert!(!resources.iter().any(|resource| resource.starts_with("secrets")), "{rule}");
    }
}

/// The permissions that Weir checks at start and reports if missing
/// (`src/auth/permission_check/spec.rs`).
#[test]
fn every_permission_that_weir_checks_is_granted() {
    let roles = |file: &str| -> Vec<String> {
        let bound = documents(&deploy(file)).into_iter().filter(|one| one["roleRef"].is_object());
        bound.map(|one| one["roleRef"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let bound = roles("manifests/rbac.yaml");
    for role in ["weir-cache", "system:auth-delegator", "extension-apiserver-authentication-reader"]
    {
        assert!(bound.iter().any(|name| name == role), "{role}");
    }
    let rbac = ["clusterrolebindings", "clusterroles", "rolebindings", "roles"];
    let extra = "userextras/authentication.kubernetes.io/credential-id";
    for (file, group, resources, verbs) in [
        (
            "rbac",
            "apiextensions.k8s.io",
            &["customresourcedefinitions"][..],
            &["list", "watch"][..],
        ),
        ("rbac", "apiregistration.k8s.io", &["apiservices"], &["list", "watch"]),
        ("optional/rbac-reader", "rbac.authorization.k8s.io", &rbac, &["list", "watch"]),
        ("optional/secrets", "", &["secrets"], &["list", "watch"]),
        ("optional/impersonator", "authentication.k8s.io", &[extra], &["impersonate"]),
    ] {
        let granted = rules_of(&format!("manifests/{file}.yaml")).into_iter().any(|rule| {
            let has = |key: &str, expected: &[&str]| {
                expected.iter().all(|one| texts(&rule[key]).iter().any(|text| text == one))
            };
            let any_name = rule["resourceNames"].is_null();
            any_name
                && has("apiGroups", &[group])
                && has("resources", resources)
                && has("verbs", verbs)
        });
        assert!(granted, "{file}: {resources:?}");
    }
}

#[test]
fn impersonation_secrets_and_rbac_are_opt_in() {
    let listed = fs::read_to_string(deploy("manifests/kustomization.yaml")).unwrap();
    let kustomization = &documents(&deploy("manifests/kustomization.yaml"))[0];
    for file in texts(&kustomization["resources"]) {
        assert!(!file.contains("optional"), "{file}");
        assert!(deploy("manifests").join(file).exists());
    }
    for entry in fs::read_dir(deploy("manifests/optional")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(listed.contains(&format!("# - optional/{name}")), "{name} is not offered");
        assert!(!documents(&path).is_empty());
    }
    for rule in rules_of("manifests/optional/impersonator.yaml") {
        let resources = texts(&rule["resources"]);
        let extra = resources.iter().all(|resource| resource.starts_with("userextras/"));
        assert!(extra || !texts(&rule["resourceNames"]).is_empty(), "impersonates anybody: {rule}");
    }
}

#[test]
fn all_manifests_use_one_namespace_and_one_service_account() {
    for entry in fs::read_dir(deploy("manifests")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() || path.ends_with("kustomization.yaml") {
            continue;
        }
        for document in documents(&path) {
            let namespace = &document["metadata"]["namespace"];
            assert!(namespace.is_null() || namespace == "weir" || namespace == "kube-system");
            for subject in document["subjects"].as_array().into_iter().flatten() {
                assert_eq!(
                    (&subject["name"], &subject["namespace"]),
                    (&"weir".into(), &"weir".into())
                );
            }
        }
    }
}

#[test]
fn the_deployed_configuration_is_valid_and_in_gateway_mode() {
    let config = configuration();
    assert_eq!(config.authentication.mode, Mode::Gateway);
}

#[test]
fn the_kubelet_waits_for_the_whole_drain() {
    let deployment = documents(&deploy("manifests/deployment.yaml")).remove(0);
    let pod = deployment.pointer("/spec/template/spec").unwrap();
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    let ServerConfig { shutdown_delay, shutdown_timeout, .. } = configuration().server;
    let drain = shutdown_delay + shutdown_timeout;
    assert!(drain + Duration::from_secs(5) <= Duration::from_secs(grace), "{drain:?}, {grace} s");
    // The kubelet's time includes that of a hook, during which new connections would be accepted
    // twice as long as needed.
    assert!(pod.pointer("/containers/0").unwrap().get("lifecycle").is_none());
}

/// Kubernetes never updates a file that is mounted by its name alone.
#[test]
fn the_configuration_is_mounted_as_a_directory() {
    let examples = ["deploy/manifests/deployment.yaml", "docs/how-to/sidecar.md"];
    for file in examples.into_iter().chain(["deploy/helm/weir/templates/deployment.yaml"]) {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        assert!(!text.contains("subPath:"), "{file}");
        assert!(text.contains("/etc/weir/config/weir.yaml"), "{file}");
    }
}

#[test]
fn the_chart_and_the_manifests_name_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = documents(&deploy("helm/weir/Chart.yaml")).remove(0);
    assert_eq!(chart["appVersion"], version);
    let deployment = documents(&deploy("manifests/deployment.yaml")).remove(0);
    let image = deployment.pointer("/spec/template/spec/containers/0/image").unwrap();
    assert_eq!(image, &format!("weir:{version}"));
}

fn configuration() -> Config {
    let document = documents(&deploy("manifests/config.yaml")).remove(0);
    let text = document.pointer("/data/weir.yaml").unwrap().as_str().unwrap();
    let file = ConfigFile::parse("weir.yaml", text).unwrap();
    Config::resolve(file, Overrides::default()).unwrap()
}

fn rules_of(file: &str) -> Vec<Value> {
    let roles = documents(&deploy(file)).into_iter().filter(|one| one["kind"] == "ClusterRole");
    roles
        .flat_map(|role| role.get("rules").and_then(|rules| rules.as_array()).cloned().unwrap())
        .collect()
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.split("\n---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn deploy(file: &str) -> PathBuf {
    root().join("deploy").join(file)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
