//! Measures a local RBAC decision with 10,000 bindings of 1,000 roles, and a change of one binding.

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use weir::auth::rbac::index::IndexWriter;
use weir::auth::rbac::resource::RbacResource;
use weir::auth::rbac::rule::Action;
use weir::auth::user::User;

const BINDINGS: usize = 10_000;
const ROLES: usize = 1_000;
const NAMESPACES: usize = 100;

/// Returns an index in which a tenth of the bindings are ClusterRoleBindings. Each role has five
/// rules with ten resources; the last one allows the measured request.
fn cluster() -> IndexWriter {
    let mut writer = IndexWriter::default();
    let resources: Vec<_> = (0..10).map(|n| format!(r#""resource{n}""#)).collect();
    let resources = resources.join(",");
    for role in 0..ROLES {
        let rules: Vec<_> = (0..5)
            .map(|n| format!(r#"{{"verbs":["get","list","watch"],"apiGroups":["group{n}"],"resources":[{resources}]}}"#))
            .collect();
        let role_json = format!(r#"{{"rules":[{}]}}"#, rules.join(","));
        let name = format!("role{role}");
        writer.put(RbacResource::ClusterRoles, "", &name, role_json.as_bytes());
    }
    for n in 0..BINDINGS {
        let namespace = format!("ns{}", n % NAMESPACES);
        let (resource, namespace) = if n % 10 == 0 {
            (RbacResource::ClusterRoleBindings, "")
        } else {
            (RbacResource::RoleBindings, namespace.as_str())
        };
        writer.put(resource, namespace, &format!("binding{n}"), binding(n).as_bytes());
    }
    writer
}

fn binding(n: usize) -> String {
    let role = n % ROLES;
    format!(
        r#"{{"subjects":[{{"kind":"User","name":"user{n}"}},{{"kind":"Group","name":"group{}"}}],"roleRef":{{"kind":"ClusterRole","name":"role{role}"}}}}"#,
        n / 10
    )
}

fn decisions(criterion: &mut Criterion) {
    let mut writer = cluster();
    let index = writer.index();
    let groups = ["group555", "system:authenticated", "system:serviceaccounts", "dev"];
    let groups = groups.map(str::to_owned).to_vec();
    let user =
        |name: &str| User::new(name.to_owned(), String::new(), groups.clone(), BTreeMap::new());
    let action = |resource| Action::Resource {
        verb: "list",
        group: "group4",
        resource,
        subresource: "",
        namespace: "ns51",
        name: "",
    };
    let (allowed, denied) = (action("resource9"), action("secrets"));
    let known_user = user("user5551");
    assert!(index.allows(&known_user, &allowed) && !index.allows(&known_user, &denied));
    criterion.bench_function("rbac/allow", |bencher| {
        bencher.iter(|| black_box(&index).allows(black_box(&known_user), black_box(&allowed)));
    });
    criterion.bench_function("rbac/deny", |bencher| {
        bencher.iter(|| black_box(&index).allows(black_box(&known_user), black_box(&denied)));
    });
    let nobody = User::new("nobody".to_owned(), String::new(), Vec::new(), BTreeMap::new());
    criterion.bench_function("rbac/deny_nobody", |bencher| {
        bencher.iter(|| black_box(&index).allows(black_box(&nobody), black_box(&denied)));
    });
    let (one, other) = (binding(1), binding(2));
    let mut turn = false;
    criterion.bench_function("rbac/change_of_a_binding", |bencher| {
        bencher.iter(|| {
            turn = !turn;
            let json = if turn { &other } else { &one };
            writer.put(RbacResource::RoleBindings, "ns1", "binding1", json.as_bytes());
            black_box(writer.index())
        });
    });
    criterion.bench_function("rbac/build", |bencher| bencher.iter(cluster));
}

criterion_group!(benches, decisions);
criterion_main!(benches);
