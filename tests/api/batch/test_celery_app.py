"""What Celery and kombu are kept from doing."""

import logging

from kombu import Queue

from api.batch.celery_app import acknowledge_only_while_connected, new_celery_app

log = logging.getLogger(__name__)


def test_a_task_that_ends_after_its_connection_has_gone_does_not_take_the_worker_down(broker_url: str) -> None:
    acknowledge_only_while_connected()
    with new_celery_app(broker_url).connection_for_read() as connection:
        channel = connection.channel()
        queue = Queue("acknowledged-in-vain", channel=channel)
        queue.declare()
        for number in range(2):
            connection.Producer(channel).publish({"number": number}, routing_key=queue.name)
        first, second = queue.get(), queue.get()
        assert first is not None
        assert second is not None
        first.ack_log_error(log, (OSError,))
        channel.close()
        channel._disconnect_pools()  # as when the connection broke
        second.ack_log_error(log, (OSError,))
        assert (first.acknowledged, second.acknowledged) == (True, True)
