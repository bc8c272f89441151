from django.db import models


class Order(models.Model):
    """An order that a task charges, by ORM and in a transaction."""

    number = models.IntegerField(unique=True)
    charged = models.IntegerField(default=0)
