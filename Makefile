# make test    set up and run all tests, on SQLite, without any server
# make demo    set up and run the example project's invoices to their end: worker and beat in one process, on SQLite;
#              make demo BROKER=redis://... DATABASE_URL=postgres://... the same with processes (amqp://, mysql:// too)
# make site    the demo, and then its site, with some runs left for you; PORT=8000
# make browser    use the site as a person does, in a real browser: needs Chromium
# make contract   hold the API against its description: schemathesis, and a generated client that runs an approval
# make messages   bring the catalogues of translations up to date, and compile them
# make check   all that has to hold before a commit: lint, migrations, test

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := demo.sqlite3
BROKER ?= memory://
DATABASE_URL ?= sqlite:///$(DEMO)
PORT ?= 8000

.PHONY: test contract demo demo-database site browser messages lint format migrations check install install-dev clean

test: install
	$(BIN)/python -m pytest $(ARGS)

demo site: export BROKER := $(BROKER)
demo site: export DATABASE_URL := $(DATABASE_URL)
demo site: export TICK_SECONDS := 0.5
demo: demo-database
	$(BIN)/python manage.py invoices_demo $(ARGS)

site: demo-database
	$(BIN)/python manage.py invoices_site --port $(PORT) $(ARGS)

demo-database: install
	$(if $(findstring mysql://,$(DATABASE_URL)),$(BIN)/python -m pip install --quiet -e '.[mysql]')
	rm -f $(DEMO) $(DEMO)-wal $(DEMO)-shm
	$(BIN)/python manage.py migrate --verbosity 0

contract: $(VENV)-contract/.installed
	$(VENV)-contract/bin/python -m pytest tests/contract $(ARGS)

# What the browser saw is left in .screenshots.
browser: $(VENV)/.installed-browser
	$(BIN)/python -m pytest tests/browser $(ARGS)

# Needs GNU gettext.
messages: install
	cd flow_app && ../$(BIN)/django-admin makemessages -l de -l en --no-wrap --no-location --no-obsolete
	sed -i '/^"POT-Creation-Date/d' flow_app/locale/*/LC_MESSAGES/django.po
	cd flow_app && ../$(BIN)/django-admin compilemessages -l de

lint: install-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The second run asks as a project with another default key would: nothing may change inside site-packages.
migrations: install
	$(BIN)/python manage.py check
	$(BIN)/python manage.py makemigrations --check --dry-run
	DEFAULT_AUTO_FIELD=django.db.models.AutoField $(BIN)/python manage.py makemigrations --check --dry-run flow_app

check: lint migrations test

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "flow_app needs Python 3.11 or newer, and $(PYTHON) is not. Name one that is: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.installed: $(VENV)/.created requirements.txt pyproject.toml
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(VENV)/.installed-browser: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group browser
	@touch $@

$(VENV)-contract/.installed: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)-contract
	$(VENV)-contract/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(VENV)-contract/bin/python -m pip install --quiet -r requirements.txt --group contract
	$(VENV)-contract/bin/python -m pip install --quiet --no-deps -e .
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-contract build dist .nox .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .screenshots .test-databases
	rm -f $(DEMO) $(DEMO)-wal $(DEMO)-shm
	find flow_app project tests -name __pycache__ -type d -prune -exec rm -rf {} +
