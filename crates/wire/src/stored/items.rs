//! The input items of a response that the upstream keeps (Responses), as the client sent them.
//!
//! Runs that a client was shown as shell items come back as such, and go upstream as calls and their results. What the
//! client sent is remembered with the answer, and listed in place of these.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{ItemPage, MAX_MEMBERS_BYTES, StoredForm, list_of, listed};
use crate::json::{self, Span};

/// A shell item that the client sent, and where it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentRun {
    /// The call id of the upstream's item in whose place this one is listed. Several of one place are listed in order.
    pub call_id: String,
    /// That item is the result of the call, and not the call.
    pub is_result: bool,
    /// The client's item in the form of a list, as JSON.
    pub item: String,
}

/// The runs of one request, within the bound of what a form shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentRuns {
    runs: Vec<SentRun>,
    /// Where those of the running turn begin.
    turn: usize,
    bytes: usize,
    /// None is listed: they do not fit, or the upstream's items do not say which is which.
    lost: bool,
}

/// What a client asks of a list of input items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemsAsked {
    /// The id of the run behind which the page begins. Taken out when the list has come to it: what follows is behind it.
    pub behind: Option<String>,
    /// Most items of the page.
    pub most: usize,
    /// The oldest item comes first; else the latest.
    pub ascending: bool,
}

impl SentRun {
    fn size(&self) -> usize {
        size_of::<Self>() + self.call_id.len() + self.item.len()
    }

    fn is_at(&self, call_id: &str, is_result: bool) -> bool {
        self.call_id == call_id && self.is_result == is_result
    }

    fn has_id(&self, id: &str) -> bool {
        id_of(self.item.as_bytes()).as_deref() == Some(id)
    }
}

impl SentRuns {
    /// The next runs are those of another answer.
    pub(crate) fn begin_turn(&mut self) {
        self.turn = self.runs.len();
    }

    /// Adds a run of the running turn. Two answers of an upstream that counts its calls have calls of the same ids, whose
    /// places are not distinguished.
    pub(crate) fn add(&mut self, run: SentRun) {
        let is_known = |own: &SentRun| own.is_at(&run.call_id, run.is_result);
        self.bytes += run.size();
        self.lost = self.lost || self.bytes > MAX_MEMBERS_BYTES || self.runs[..self.turn].iter().any(is_known);
        if self.lost {
            self.runs = Vec::new();
            self.turn = 0;
        } else {
            self.runs.push(run);
        }
    }

    /// The runs in order; none if not all of them can be listed.
    pub(crate) fn finish(self) -> Vec<SentRun> {
        self.runs
    }
}

impl StoredForm {
    /// Lists these runs, if there is room for all of them beside the members.
    pub(crate) fn list_runs(&mut self, runs: &[SentRun]) {
        if self.members_size() + runs.iter().map(SentRun::size).sum::<usize>() <= MAX_MEMBERS_BYTES {
            self.runs = runs.to_vec();
        }
    }

    pub(super) fn runs_size(&self) -> usize {
        self.runs.iter().map(SentRun::size).sum()
    }

    /// Whether a run that is listed has this id, which the upstream does not know.
    pub fn lists_run(&self, id: &str) -> bool {
        self.runs.iter().any(|run| run.has_id(id))
    }

    /// A page of input items as the client sent them, and at most [`ItemsAsked::most`] of them; `None`: it is no list.
    pub fn page(&self, body: &[u8], asked: &mut ItemsAsked) -> Option<ItemPage> {
        let (top, items) = listed(body)?;
        let mut shown = self.shown_items(body, &items, asked.ascending);
        if let Some(behind) = &asked.behind {
            let index = shown
                .iter()
                .position(|item| id_of(item).as_deref() == Some(behind.as_str()));
            shown.drain(..index.map_or(shown.len(), |at| at + 1));
            if index.is_some() {
                asked.behind = None;
            }
        }
        let is_cut = shown.len() > asked.most;
        shown.truncate(asked.most);
        Some(list_of(body, top, &items, &shown, is_cut))
    }

    /// The items of a list that are the client's, in its order.
    fn shown_items(&self, src: &[u8], items: &[Span], ascending: bool) -> Vec<Vec<u8>> {
        let hidden: HashSet<usize> = self.hidden_of(src, items, self.crowded).into_iter().collect();
        let mut shown = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let own = self.runs_at(src, *item).map(|run| run.item.clone().into_bytes());
            let from = shown.len();
            shown.extend(own);
            if !ascending {
                shown[from..].reverse();
            }
            if shown.len() == from && !hidden.contains(&at) {
                shown.push(item.of(src).to_vec());
            }
        }
        shown
    }

    /// The runs that are listed in place of an item of the upstream's.
    fn runs_at(&self, src: &[u8], item: Span) -> impl Iterator<Item = &SentRun> {
        let text = |key| json::get_text(src, item, key).unwrap_or_default().into_owned();
        let (kind, call_id) = (text("type"), text("call_id"));
        let is_result = kind == "function_call_output";
        let of_item = move |run: &&SentRun| run.is_at(&call_id, is_result);
        let may_be = is_result || kind == "function_call";
        self.runs.iter().filter(move |run| may_be && of_item(run))
    }
}

/// The id of an item that stands alone.
fn id_of(item: &[u8]) -> Option<String> {
    json::get_text(item, Span::new(0, item.len()), "id").map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::stored::tests::call;

    fn asked(behind: Option<&str>, most: usize, ascending: bool) -> ItemsAsked {
        ItemsAsked {
            behind: behind.map(str::to_owned),
            most,
            ascending,
        }
    }

    fn run(call_id: &str, is_result: bool, id: &str) -> SentRun {
        SentRun {
            call_id: call_id.to_owned(),
            is_result,
            item: json!({"type": "shell_call", "id": id}).to_string(),
        }
    }

    fn output(id: &str) -> Value {
        json!({"type": "function_call_output", "id": format!("fco_{id}"), "call_id": id})
    }

    fn form(runs: Vec<SentRun>, hidden: &[&str]) -> StoredForm {
        StoredForm {
            hidden: hidden.iter().map(|&id| id.to_owned()).collect(),
            runs,
            ..StoredForm::default()
        }
    }

    /// A list of these items, and what is shown of it.
    fn page(form: &StoredForm, items: &[Value], more: bool, asked: &mut ItemsAsked) -> (Value, Option<String>) {
        let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
        let list = json!({
            "object": "list", "data": items, "has_more": more, "first_id": id(items.first()), "last_id": id(items.last()),
        });
        let page = form.page(list.to_string().as_bytes(), asked).unwrap();
        (serde_json::from_slice(&page.body).unwrap(), page.next)
    }

    #[test]
    fn a_page_has_the_clients_items_only_and_says_where_it_ends() {
        let form = form(Vec::new(), &["call_1", "call_2"]);
        let (one, two, three) = (call("call_1"), call("call_2"), call("call_3"));
        let (output, run) = (output("call_1"), call("call_knack_9"));
        let (shown, next) = page(
            &form,
            &[one.clone(), output.clone(), three.clone(), two.clone(), run],
            true,
            &mut asked(None, 20, true),
        );
        assert_eq!(
            (shown, next),
            (
                json!({"object": "list", "data": [three], "has_more": true, "first_id": "fc_call_3", "last_id": "fc_call_3"}),
                None
            )
        );
        // All of a page is Knack's: the next one is asked for, if there is one.
        let ours = [one, output];
        let (shown, next) = page(&form, &ours, true, &mut asked(None, 20, true));
        assert_eq!(
            (&shown["data"], &shown["first_id"], next.as_deref()),
            (&json!([]), &json!(null), Some("fco_call_1"))
        );
        assert_eq!(page(&form, &ours, false, &mut asked(None, 20, true)).1, None);
        // A page that was read in larger pieces than the client asked for.
        let (shown, next) = page(
            &form,
            &[call("call_4"), call("call_5")],
            false,
            &mut asked(None, 1, true),
        );
        assert_eq!(
            (&shown["data"], &shown["has_more"], &shown["last_id"], next),
            (&json!([call("call_4")]), &json!(true), &json!("fc_call_4"), None)
        );
        assert_eq!(form.page(br#"{"object":"response"}"#, &mut asked(None, 1, true)), None);
    }

    /// The ids of what is shown of a list.
    fn ids(shown: &Value) -> Vec<&str> {
        let data = shown["data"].as_array().unwrap();
        data.iter().filter_map(|item| item["id"].as_str()).collect()
    }

    #[test]
    fn runs_are_listed_where_their_results_are_in_the_order_of_the_list() {
        let runs = vec![
            run("call_1", true, "sh_1"),
            run("call_1", true, "sh_2"),
            run("call_1", true, "sho_1"),
            run("call_2", true, "sho_2"),
        ];
        let form = form(runs, &[]);
        let message = json!({"type": "message", "id": "msg_1"});
        let mut items = [
            call("call_1"),
            message,
            call("call_2"),
            output("call_1"),
            output("call_2"),
        ];
        let (shown, _) = page(&form, &items, false, &mut asked(None, 20, true));
        assert_eq!(ids(&shown), ["msg_1", "sh_1", "sh_2", "sho_1", "sho_2"]);
        items.reverse();
        let (shown, _) = page(&form, &items, false, &mut asked(None, 3, false));
        assert_eq!(ids(&shown), ["sho_2", "sho_1", "sh_2"]);
        assert_eq!((&shown["last_id"], &shown["has_more"]), (&json!("sh_2"), &json!(true)));
        // The rest of it begins behind an id that the upstream does not know, and may be on a later page of the upstream's.
        assert!(form.lists_run("sh_2") && !form.lists_run("msg_1"));
        let mut rest = asked(Some("sh_2"), 3, false);
        let (shown, next) = page(&form, &items[..1], true, &mut rest);
        assert_eq!((ids(&shown), next.as_deref()), (Vec::new(), Some("fco_call_2")));
        let (shown, next) = page(&form, &items[1..], false, &mut rest);
        assert_eq!((ids(&shown), next, rest.behind), (vec!["sh_1", "msg_1"], None, None));
        assert_eq!(shown["has_more"], false);
    }

    #[test]
    fn runs_are_listed_all_or_none() {
        let gathered = |turns: &[&[SentRun]]| {
            let mut runs = SentRuns::default();
            for turn in turns {
                runs.begin_turn();
                for run in *turn {
                    runs.add(run.clone());
                }
            }
            runs.finish().len()
        };
        let (one, two) = (run("call_1", true, "sh_1"), run("call_2", true, "sh_2"));
        assert_eq!(gathered(&[&[one.clone(), one.clone()], std::slice::from_ref(&two)]), 3);
        // If two calls have one id, it is not known which is which.
        assert_eq!(gathered(&[&[one.clone(), two.clone()], std::slice::from_ref(&two)]), 0);
        let large = run("call_3", true, &"x".repeat(MAX_MEMBERS_BYTES));
        assert_eq!(gathered(&[&[one.clone(), large.clone(), two]]), 0);
        let mut form = form(Vec::new(), &[]);
        form.list_runs(&[large]);
        assert!(form.runs.is_empty());
        form.list_runs(std::slice::from_ref(&one));
        assert_eq!((form.runs.len(), form.runs_size()), (1, one.size()));
    }
}
