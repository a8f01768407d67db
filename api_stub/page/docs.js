// Starts Swagger UI; a file of its own, as the page's policy lets no script be written into it.

window.ui = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  filter: true,
  persistAuthorization: true,
  validatorUrl: null, // would send the document to a server of Swagger's
});
