"""What other clients' documentation shows, on krust: `python -m examples.clients.NAME HOST:PORT`.

Each file says whose flow it follows and what is different here. tests/clients/test_examples.py runs
them all.
"""
