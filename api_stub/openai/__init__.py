"""OpenAI's images and videos over our jobs. Owns their fields, shapes and errors; what a job is, is known elsewhere."""
