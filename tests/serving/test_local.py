from typing import Any

from ray.serve.schema import ServeDeploySchema

from deeped_ray.serving.local import local_config


def application(**deployment: Any) -> Any:
    config = ServeDeploySchema.model_validate(local_config(8001, {"kb": "/kb", "model": "local"}, **deployment))
    assert config.http_options.port == 8001
    return config.applications[0]


def test_replicas_run_in_the_environment_of_their_ray() -> None:
    found = application()
    assert (found.import_path, found.runtime_env) == ("deeped_ray.serving.app:build", {})


def test_settings_that_are_not_given_keep_their_defaults() -> None:
    found = application(autoscaling_config={"max_replicas": 3})
    (deployment,) = found.deployments
    assert (deployment.autoscaling_config["max_replicas"], deployment.autoscaling_config["min_replicas"]) == (3, 2)
    assert (found.args["model"], found.args["max_batch_mentions"]) == ("local", 200)
