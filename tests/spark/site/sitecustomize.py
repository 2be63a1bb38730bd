"""Takes pyspark from where pip put it, in the processes that Spark starts for tests.

Spark puts its own zip first, which has no bytecode: each process that plans a stream would compile
half a second of Python again.
"""

import sys

sys.path[:] = [place for place in sys.path if not place.endswith("/python/lib/pyspark.zip")]
