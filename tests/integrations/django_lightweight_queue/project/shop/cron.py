CONFIG = ({"command": "stocktake", "hours": "*", "minutes": "*", "command_args": ["shelf"]},)
