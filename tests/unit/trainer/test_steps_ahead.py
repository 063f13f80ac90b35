"""Batches drawn some steps ahead: which student draws them, what a checkpoint keeps, and what stops a run."""

import pytest
from transformers import TrainerCallback

from tiny_step import losses_of, make_trainer
from vcsd.config.sections import RolloutConfig
from vcsd.errors import ConfigError, RunError
from vcsd.rollout.drawn_ahead import RolloutQueue
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.shares import MAX_AHEAD, RolloutSettings


def ahead(folder, lag, **changes):
    """A trainer that draws so many steps ahead, and notes each batch with the student's weight at that time."""
    arguments = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, **changes.pop("arguments", {})}
    settings = RolloutSettings(Sampling(max_new_tokens=7), 3, seed=0, steps_ahead=lag)
    trainer = make_trainer(folder, arguments=arguments, rollout=settings, **changes)
    trainer.drawn = {}
    sampled = trainer._sampled

    def noted(engine, step):
        batch = sampled(engine, step)
        trainer.drawn[step] = (trainer.state.global_step + 1, [r.token_ids for r in batch.rollouts])
        return batch

    trainer._sampled = noted
    return trainer


@pytest.mark.parametrize("lag", [0, 1, 2, 4])
def test_the_student_of_a_step_draws_the_batch_that_many_steps_later(tmp_path, lag):
    trainer = ahead(tmp_path, lag)
    trainer.train()
    assert {step: student for step, (student, _) in trainer.drawn.items()} == {
        step: max(1, step - lag) for step in range(1, 7)
    }
    lags = [entry.get("rollout_lag") for entry in trainer.state.log_history if "loss" in entry]
    assert lags == ([None] * 6 if lag == 0 else [min(step - 1, lag) for step in range(1, 7)])


@pytest.mark.parametrize("lag", [0, 2])
def test_prompts_and_batches_of_earlier_steps_are_not_kept(tmp_path, lag):
    trainer = ahead(tmp_path, lag, arguments={"max_steps": 4})
    trainer.train()
    assert {step: len(read.items) for step, read in trainer.queue.prompts.items()} == {3: 0, 4: 3}
    assert list(trainer.queue.drawn) == [4]


def test_no_batch_is_drawn_for_a_step_after_the_last(tmp_path):
    trainer = ahead(tmp_path, 4, arguments={"max_steps": 2})
    trainer.train()
    assert sorted(trainer.drawn) == [1, 2]


def test_the_first_steps_agree_and_later_ones_do_not(tmp_path):
    now, later = ahead(tmp_path / "now", 0), ahead(tmp_path / "later", 1)
    now.train()
    later.train()
    assert losses_of(now)[0] == losses_of(later)[0]
    assert losses_of(now)[2:] != losses_of(later)[2:]


@pytest.mark.parametrize("lag", [1, 4])
def test_a_resumed_run_trains_on_the_same_rollouts(tmp_path, lag):
    whole = ahead(tmp_path / "whole", lag)
    whole.train()
    cut = ahead(tmp_path / "cut", lag)
    stop_after(cut, 2)
    cut.train()
    assert cut.state.global_step == 2
    again = ahead(tmp_path / "cut", lag)
    again.train("auto")
    assert losses_of(again) == losses_of(whole)
    assert all(again.drawn[step] == whole.drawn[step] for step in again.drawn)
    assert sorted(again.drawn) == list(range(3 + lag, 7)), "batches of the checkpoint are not drawn again"
    assert again.stream.skips.state() == whole.stream.skips.state()


def stop_after(trainer, step):
    """Save and stop as a signal would."""

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == step:
                control.should_save = control.should_training_stop = True

    trainer.add_callback(Stop())


def test_a_longer_run_resumes_with_fresh_batches_after_the_old_end(tmp_path):
    ahead(tmp_path, 2, arguments={"max_steps": 2}).train()
    longer = ahead(tmp_path, 2, arguments={"max_steps": 5})
    longer.train("auto")
    assert {step: student for step, (student, _) in longer.drawn.items()} == {3: 3, 4: 3, 5: 3}


def test_a_shorter_run_resumes_and_keeps_the_batches_after_its_end(tmp_path):
    cut = ahead(tmp_path, 2)
    stop_after(cut, 2)
    cut.train()
    shorter = ahead(tmp_path, 2, arguments={"max_steps": 3, "save_steps": 3})
    shorter.train("auto")
    assert shorter.state.global_step == 3
    assert shorter.drawn == {}
    again = ahead(tmp_path, 2)
    again.train("auto")
    assert {step: student for step, (student, _) in again.drawn.items()} == {5: 4, 6: 4}


def test_a_checkpoint_without_its_rollouts_is_damaged(tmp_path):
    ahead(tmp_path, 1, arguments={"max_steps": 2, "lr_scheduler_type": "constant"}).train()
    (tmp_path / "checkpoint-2" / "waiting_rollouts.json").unlink()
    with pytest.raises(ConfigError, match=r"waiting_rollouts\.json"):
        ahead(tmp_path, 1, arguments={"max_steps": 4, "lr_scheduler_type": "constant"}).train("auto")


def test_a_run_does_not_resume_with_another_lag(tmp_path):
    ahead(tmp_path, 0, arguments={"max_steps": 2}).train()
    assert not (tmp_path / "checkpoint-2" / "waiting_rollouts.json").exists()
    with pytest.raises(ConfigError, match=r"rollout\.steps_ahead was None and is now 1"):
        ahead(tmp_path, 1).train("auto")


def test_rollouts_of_another_student_are_refused(tmp_path):
    queue = RolloutQueue(lag=1)
    assert queue.plan(5, max_steps=90) == [5, 6]
    with pytest.raises(RunError, match="drawn by the student of step 4, not by that of step 5 as planned"):
        queue.add(6, 4, None)
    queue.add(6, 5, None)
    queue.add(5, 5, None)
    assert queue.plan(6, max_steps=90) == [7]
    queue._planned[7] = 5
    queue.add(7, 5, None)
    with pytest.raises(RunError, match=r"drawn by the student of step 5, but rollout\.steps_ahead = 1"):
        queue.of(7)


def test_a_checkpoint_with_rollouts_of_other_prompts_is_refused(tmp_path, monkeypatch):
    cut = ahead(tmp_path, 1)
    stop_after(cut, 2)
    cut.train()
    load = RolloutQueue.load

    def renamed(queue, state):
        load(queue, [{**each, "rollouts": [["elsewhere", *r[1:]] for r in each["rollouts"]]} for each in state])

    monkeypatch.setattr(RolloutQueue, "load", renamed)
    with pytest.raises(RunError, match="rollouts of step 3 for other prompts"):
        ahead(tmp_path, 1).train("auto")


def test_the_range_is_the_same_in_recipes():
    limits = [limit.le for limit in RolloutConfig.model_fields["steps_ahead"].metadata if hasattr(limit, "le")]
    assert limits == [MAX_AHEAD]
    with pytest.raises(ConfigError, match=r"rollout\.steps_ahead = 9 is outside \[0, 8\]"):
        RolloutSettings(Sampling(), steps_ahead=9)
    with pytest.raises(ConfigError, match="num_per_prompt = 0 must be at least 1"):
        RolloutSettings(Sampling(), num_per_prompt=0)


def test_a_lag_without_a_server_gets_a_warning(tmp_path, caplog):
    ahead(tmp_path, 1, arguments={"max_steps": 1}).train()
    assert "rollout.steps_ahead = 1 saves no time without a vLLM server" in caplog.text
