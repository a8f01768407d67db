// The previews that the page asks for by itself: about eight of a job, where a model can have any.

/** Denoising steps between two. */
export const usualPreviews = (request) => Math.max(1, Math.ceil((request.num_inference_steps || 8) / 8));

/** What a person should read. Nobody asked for the page's own previews, and a model's first picture has none. */
export function warningsOf(job) {
  const isOwnWish = job.request.preview_every === usualPreviews(job.request);
  return job.warnings.filter((text) => !(isOwnWish && text.startsWith("no previews:")));
}
