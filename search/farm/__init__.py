"""The search on a farm: blocks of work for dask workers on other machines, and scripts that start them.

``engine`` answers an exploration with workers, ``dispatch`` decides who is asked what and what happens when an answer
fails, ``dask_workers`` speaks with dask, ``answers`` runs on the workers, ``checks`` judges what they answer.
"""
