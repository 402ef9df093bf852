//! An upload far beyond what an object of Kubernetes holds.

use std::fs::File;
use std::io::{Cursor, Read as _};
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::Skill;
use kube::Api;
use kube::api::ListParams;

use crate::installation::{Installation, SOON};
use crate::requests::{Dialect, form};
use crate::{digest, until_ready};

/// Bytes of the folder, as the largest of the public skills has them. An etcd request takes 1.5 MiB.
const FOLDER_BYTES: usize = 5_600_000;
/// Files of it besides SKILL.md.
const FILES: usize = 7;

#[test]
fn a_folder_of_5_6_mb_is_served_from_immutable_config_maps_and_comes_back_byte_for_byte() {
    let test = "a_folder_of_5_6_mb_is_served_from_immutable_config_maps_and_comes_back_byte_for_byte";
    cluster_support::run(test, async |cluster| {
        let installation = Installation::start(cluster).await;
        let team = installation.client_of("team", "default").await;
        let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.team);
        let maps: Api<ConfigMap> = Api::namespaced(installation.client.clone(), &installation.team);

        // Bytes that no compression makes smaller.
        let mut files = vec![(
            "SKILL.md".to_owned(),
            b"---\nname: canvas\ndescription: About fonts.\n---\nText.\n".to_vec(),
        )];
        let mut random = File::open("/dev/urandom").unwrap();
        for number in 0..FILES {
            let mut content = vec![0; FOLDER_BYTES / FILES];
            random.read_exact(&mut content).unwrap();
            files.push((format!("fonts/{number}.ttf"), content));
        }
        let sent = files.iter().map(|(path, content)| (path.as_str(), content.as_slice()));
        let made = team
            .send(Dialect::OpenAi, "POST", "/v1/skills", Some(form("canvas", sent)))
            .await;
        assert_eq!(made.status, StatusCode::OK, "{}", made.text());
        let object = skills.get("canvas").await.unwrap();
        until_ready(&skills, "canvas", &digest(&object)).await;

        let served = skills.get("canvas").await.unwrap().status.unwrap().config_maps;
        assert!(served.len() > FOLDER_BYTES >> 20, "{} ConfigMaps", served.len());
        for map in &served {
            let map = maps.get(&map.name).await.unwrap();
            assert_eq!(map.immutable, Some(true), "{:?}", map.metadata.name);
        }

        let id = made.json()["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/skills/{id}/content");
        let content = team.send(Dialect::OpenAi, "GET", &path, None).await;
        assert_eq!(content.status, StatusCode::OK, "{}", content.status);
        let mut archive = zip::ZipArchive::new(Cursor::new(content.body)).unwrap();
        for (path, sent) in &files {
            let mut back = Vec::new();
            let mut file = archive.by_name(&format!("canvas/{path}")).unwrap();
            file.read_to_end(&mut back).unwrap();
            assert!(back == *sent, "{path}: {} bytes", back.len());
        }

        let path = format!("/v1/skills/{id}");
        let deleted = team.send(Dialect::OpenAi, "DELETE", &path, None).await;
        assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.text());
        installation.until_gone("canvas").await;
        // Kubernetes collects it as it does the rest, in no order.
        let served = ListParams::default().labels("knack.dev/skill=canvas");
        let gone = async {
            while !maps.list(&served).await.unwrap().items.is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let gone = tokio::time::timeout(SOON, gone).await;
        gone.expect("what was served of it goes with it");
    });
}
