//! Objects that the controller owns: from what is wanted to what the API server has.
//!
//! A [`Desired`] can only be made with its owners, and only a `Desired` is written, so nothing is written that garbage
//! collection would not take.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use knack_vocabulary::FIELD_MANAGER;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Context;
use super::error::ControllerError;

/// A kind that the controller makes in namespaces.
pub(super) trait Owned:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + k8s_openapi::Resource
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> Owned for K where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + k8s_openapi::Resource
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned
{
}

/// An object as it must be, ready to be written.
pub(super) struct Desired<'a, K> {
    context: &'a Context,
    api: Api<K>,
    object: K,
}

/// An object that the API server took.
pub(super) struct Applied {
    pub(super) uid: String,
}

impl<'a, K: Owned> Desired<'a, K> {
    /// `object`, which has a name and a namespace, with its owners.
    pub(super) fn owned_by(context: &'a Context, mut object: K, owners: Vec<OwnerReference>) -> Self {
        object.meta_mut().owner_references = Some(owners);
        Self {
            context,
            api: Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default()),
            object,
        }
    }

    /// The wanted object.
    pub(super) fn object(&self) -> &K {
        &self.object
    }

    /// The object of its name that is there.
    pub(super) async fn found(&self) -> Result<Option<K>, ControllerError> {
        let name = self.object.name_any();
        self.context.call(|| self.what("get"), self.api.get_opt(&name)).await
    }

    /// Creates the object. `None`: there is one of its name.
    ///
    /// A create, since of two writers one must lose: an apply would adopt what the other one just made.
    pub(super) async fn create(&self) -> Result<Option<Applied>, ControllerError> {
        let params = post();
        let created = self.api.create(&params, &self.object);
        match self.context.call(|| self.what("create"), created).await {
            Ok(created) => Ok(Some(self.applied(&created))),
            Err(error) if error.status() == Some(409) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Overwrites `found` in place, if it did not change meanwhile.
    ///
    /// A replace, since an apply would keep the fields that others added.
    pub(super) async fn replace(&self, found: &K) -> Result<Applied, ControllerError> {
        let mut object = self.object.clone();
        object
            .meta_mut()
            .resource_version
            .clone_from(&found.meta().resource_version);
        let (name, params) = (object.name_any(), post());
        let replaced = self.api.replace(&name, &params, &object);
        let replaced = self.context.call(|| self.what("replace"), replaced).await?;
        Ok(self.applied(&replaced))
    }

    /// Deletes `found`, and creates the object, for what cannot be changed in place. `None`: another one came between.
    pub(super) async fn create_instead_of(&self, found: &K) -> Result<Option<Applied>, ControllerError> {
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: found.uid(),
            resource_version: None,
        });
        let name = self.object.name_any();
        match self
            .context
            .call(|| self.what("delete"), self.api.delete(&name, &params))
            .await
        {
            Err(error) if error.status() != Some(404) => return Err(error),
            _ => self.context.metrics.wrote(K::KIND),
        }
        self.create().await
    }

    fn applied(&self, object: &K) -> Applied {
        self.context.metrics.wrote(K::KIND);
        Applied {
            uid: object.uid().unwrap_or_default(),
        }
    }

    fn what(&self, verb: &str) -> String {
        let ObjectMeta { name, namespace, .. } = self.object.meta();
        let (namespace, name) = (namespace.as_deref().unwrap_or(""), name.as_deref().unwrap_or(""));
        format!("{verb} {} {namespace}/{name}", K::KIND)
    }
}

/// The owner that an object goes with and by which GitOps tools show it. No `blockOwnerDeletion`: it asks for a right on
/// finalizers.
pub(super) fn owner<K: kube::Resource<DynamicType = ()>>(object: &K) -> OwnerReference {
    OwnerReference {
        block_owner_deletion: None,
        ..object.controller_owner_ref(&()).unwrap_or_default()
    }
}

fn post() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}
