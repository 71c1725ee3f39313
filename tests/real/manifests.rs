//! Manifests that several tests apply.

/// Returns a Deployment, whose pods have the label `app=NAME` and end at once.
pub(crate) fn deployment(name: &str, replicas: u32) -> String {
    DEPLOYMENT.replace("NAME", name).replace("REPLICAS", &replicas.to_string())
}

const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: web}]
";
