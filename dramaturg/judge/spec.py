"""Declared judges: a specification states what a judge is; its settings and its service follow from it.

Example:
    A judge of some of ABSEval's criteria with a model::

        SPEC = criteria_spec(
            role=JudgeRole(name="order", criteria=(criteria.ORDER_CORRECT,)),
            description="Has a language model judge the order of the steps.",
            prompts=Path(__file__).parent / "prompts",
            question=CriteriaQuestion("order"),
        )

    The entry point ``order = "my_package.order:SPEC"`` of the group "dramaturg.services" makes it a service:
    ``dramaturg serve order``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from pydantic import BaseModel, Field, create_model

from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.criteria_judge import CriteriaJudge, CriteriaQuestion
from dramaturg.judge.excerpts import ExcerptLimits
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.roles import JudgeRole, Role
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.settings import Address, Settings

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub


LimitsT = TypeVar("LimitsT", bound=BaseModel)


class AskerSettings(Settings):
    """Settings of calls to a model. Subclasses define ``section``."""

    generation_target: Address = Field(default="localhost:50051", min_length=1)
    """The address of GenerationService."""
    model: str = Field(default="", max_length=200)
    """The model of requests that name none. Empty: the default of the generation service."""
    max_output_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    """The default token cap of an answer. Absent: the provider's."""
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """The default temperature. It is dropped for models that refuse it; to never send it, list it under
    ``omit`` in the provider's settings.
    """
    prompts_dir: Path | None = None
    """A folder of prompt files that replace the service's and the shared files of the same name. Files in its
    subfolder with the service's name take precedence.
    """


class JudgeSettings(AskerSettings, Generic[LimitsT]):
    """Settings of a judge, with the limits of its prompts as parameter. ``JudgeSpec`` defines ``section``."""

    excerpts: LimitsT = Field(default_factory=lambda: cast("Any", {}))
    """The maximum lengths of the parts of a request in the prompt."""


class CriteriaSettings(JudgeSettings[ExcerptLimits]):
    """Settings of a judge of ABSEval's criteria."""

    severity: bool = False
    """Whether the model says how grave each fault is (``Finding.severity``). It costs tokens:
    docs/reference/prompts.md.
    """


class OfflineSettings(JudgeSettings[ExcerptLimits]):
    """Settings of a judge of texts that can also work without a model."""

    backend: Literal["llm", "offline"] = "llm"
    """The backend: a language model, or embeddings and rules."""
    embedding_target: Address = Field(default="localhost:50051", min_length=1)
    """The address of EmbeddingService, for the backend "offline"."""


class OfflineCriteriaSettings(CriteriaSettings, OfflineSettings):
    """Settings of a judge of ABSEval's criteria that can also work without a model."""


SettingsT = TypeVar("SettingsT", bound=Settings)


@dataclass(frozen=True)
class Model(Generic[SettingsT]):
    """What a judge with a model is made of."""

    asker: Asker
    """Asks the model."""
    library: PromptLibrary
    """The prompts."""
    settings: SettingsT
    """The settings of the judge."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgeSpec(Generic[SettingsT]):
    """One judge. Called, it is the app of the judge's service (see ``dramaturg.service.installed.App``)."""

    role: Role
    """The role. Its name is that of the service and of the section of the settings."""
    settings: type[SettingsT]
    """Its settings, without a section. Those of a judge with a model are ``JudgeSettings``."""
    prompts: Path = Path()
    """The folder of the judge's prompts."""
    llm: Callable[[Model[SettingsT]], Contract] | None = None
    """Makes the contract, served by a model: it loads the prompts and binds form and interpretation. None:
    the judge has no model, and ``alone`` is set.
    """
    offline: Callable[[EmbeddingServiceAsyncStub], Contract] | None = None
    """Makes the contract, served without a model. The settings are then ``OfflineSettings``."""
    other: Callable[[SettingsT], AbstractAsyncContextManager[Contract] | None] | None = None
    """Opens the contract of another backend. None: there is no other, or the settings name none."""
    alone: Callable[[], Contract] | None = None
    """Makes the contract of a judge that calls no other service."""

    @cached_property
    def settings_type(self) -> type[SettingsT]:
        """The settings of the judge's section."""
        name = f"{self.role.name.title().replace('-', '')}Settings"
        bound = create_model(name, __base__=self.settings, __doc__=f"Section ``{self.role.name}``.")
        bound.section = self.role.name
        return bound

    def __call__(self, *, settings: Any = None, **given: Any) -> JudgeApp:
        """Returns the app.

        Args:
            settings: The settings, of ``settings_type``. None: they are read from the environment.
            given: Single settings that take precedence over the environment.
        """
        return JudgeApp(self, settings or self.settings_type(**given))


class JudgeApp:
    """The service of a judge.

    Args:
        spec: The judge.
        settings: Its settings.
    """

    def __init__(self, spec: JudgeSpec[Any], settings: Settings) -> None:
        self.name = spec.role.name
        self._spec = spec
        self._settings = settings

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Opens the channel of the configured backend, yields the contract, and closes the channel.

        Raises:
            PromptError: A prompt file cannot be used.
        """
        spec, settings = self._spec, self._settings
        if spec.llm is None:
            assert spec.alone is not None
            yield [spec.alone()]
            return
        assert isinstance(settings, JudgeSettings)
        if spec.other is not None and (opened := spec.other(settings)) is not None:
            async with opened as contract:
                yield [contract]
            return
        if isinstance(settings, OfflineSettings) and settings.backend == "offline":
            assert spec.offline is not None
            async with open_channel(settings.embedding_target) as channel:
                yield [spec.offline(EmbeddingServiceStub(channel))]
            return
        llm = spec.llm
        async with open_model_contract(
            settings, spec.prompts, lambda asker, library: llm(Model(asker, library, settings))
        ) as contract:
            yield [contract]


@asynccontextmanager
async def open_model_contract(
    settings: AskerSettings, prompts: Path, make: Callable[[Asker, PromptLibrary], Contract]
) -> AsyncIterator[Contract]:
    """Opens the channel to GenerationService, yields a contract served by a model, and closes the channel.

    Args:
        settings: The settings of the calls; their section is the name of the service.
        prompts: The folder of the service's prompts.
        make: Makes the contract. Its identity then gets the prompts.

    Raises:
        PromptError: A prompt file cannot be used.
    """
    library = PromptLibrary(prompts, settings.prompts_dir, service=settings.section)
    async with open_channel(settings.generation_target) as channel:
        asker = Asker(
            GenerationServiceStub(channel),
            model=settings.model,
            max_output_tokens=settings.max_output_tokens,
            temperature=settings.temperature,
        )
        contract = make(asker, library)
        library.describe(contract.identity)
        yield replace(contract, models=asker)


def criteria_spec(
    *,
    role: JudgeRole,
    description: str,
    prompts: Path,
    question: CriteriaQuestion,
    comparison: CriteriaQuestion | None = None,
    offline: Callable[[EmbeddingServiceAsyncStub], Contract] | None = None,
) -> JudgeSpec[CriteriaSettings]:
    """Specifies a judge of ABSEval's criteria with one question for each candidate.

    Args:
        role: The role. Its criteria are some of ABSEval's.
        description: A description in one sentence.
        prompts: The folder of the judge's prompts.
        question: The question.
        comparison: The question of requests with a reference. None: the same question.
        offline: Makes the contract, served without a model.
    """

    def llm(model: Model[CriteriaSettings]) -> Contract:
        graded = model.settings.severity
        return judge_contract(
            CriteriaJudge(
                name=f"llm-{role.name}",
                description=description,
                criteria=role.criteria,
                asker=model.asker,
                limits=model.settings.excerpts,
                prompt=question.load(model.library, role.criteria, graded=graded),
                reasoning=question.reasoning,
                comparing_prompt=(
                    comparison.load(model.library, role.criteria, graded=graded) if comparison else None
                ),
                comparison=comparison.reasoning if comparison else {},
                graded=graded,
            )
        )

    return JudgeSpec(
        role=role,
        prompts=prompts,
        settings=CriteriaSettings if offline is None else OfflineCriteriaSettings,
        llm=llm,
        offline=offline,
    )
