"""The process that owns a GPU: Celery in front, one engine a model behind, custody of jobs in between."""
