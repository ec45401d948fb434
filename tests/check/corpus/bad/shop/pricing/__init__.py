from . import total
