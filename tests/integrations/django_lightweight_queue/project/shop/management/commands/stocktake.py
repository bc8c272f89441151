from django.core.management.base import BaseCommand

from shop.tasks import note


class Command(BaseCommand):
    help = "A command for the cron scheduler"

    def add_arguments(self, parser):
        parser.add_argument("where")

    def handle(self, **options):
        note("stocktake", options["where"])
