// What is in the form, kept in this tab over a reload.

const DRAFT = "safelight-draft";

export const draft = {
  load() {
    try {
      return JSON.parse(sessionStorage.getItem(DRAFT)) ?? null;
    } catch {
      return null;
    }
  },

  /** A browser keeps about 5 MB: beyond that without the pictures. */
  save(values) {
    try {
      sessionStorage.setItem(DRAFT, JSON.stringify(values));
    } catch {
      const { image, mask_image: mask, ...rest } = values;
      try {
        sessionStorage.setItem(DRAFT, JSON.stringify(rest));
      } catch {
        sessionStorage.removeItem(DRAFT);
      }
    }
  },
};
