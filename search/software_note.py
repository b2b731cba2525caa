"""What to know of predictions for a cluster whose programs are taken as ideal."""

from archplace.arch_configs import Cluster, cluster_names, load_cluster
from archplace.arch_configs.cluster import IDEAL_SOFTWARE


def software_note(cluster: Cluster, accelerator: str | None = None) -> str | None:
    """Return that predictions for ``cluster`` know of no losses to software, and which built-in clusters do.

    ``accelerator`` is the name of one preset; without it no clusters are named. ``None`` where the cluster says what
    its software costs.
    """
    if cluster.software != IDEAL_SOFTWARE:
        return None
    note = f"Software is ideal: {cluster.name} has no section 'software', so that measured steps take longer."
    fitted = () if accelerator is None else fitted_clusters(accelerator)
    if fitted:
        note += f" Fitted to measured steps, or near kin: {', '.join(fitted)}."
    return note


def fitted_clusters(accelerator: str) -> tuple[str, ...]:
    """Return the names of the built-in clusters of ``accelerator`` that say what their software costs."""
    clusters = (load_cluster(name) for name in cluster_names())
    return tuple(
        cluster.name
        for cluster in clusters
        if cluster.accelerator == accelerator and cluster.software != IDEAL_SOFTWARE
    )
